//! Large headers.

use super::found_in;
use crate::ClientIp;

#[test]
fn many_entries_in_one_line_or_in_many_count_from_the_right() {
    for count in [1_000, 100_000] {
        let mut entries = vec!["192.0.2.66"; count];
        entries[0] = "192.0.2.1";
        for lines in [entries.clone(), vec![&*entries.join(", ")]] {
            for (position, expected) in
                [(1, "192.0.2.66"), (count - 1, "192.0.2.66"), (count, "192.0.2.1"), (count + 1, "missing")]
            {
                assert_eq!(found_in(&ClientIp::x_forwarded_for(position), "x-forwarded-for", &lines), expected);
            }
        }
        let elements: Vec<_> = entries.iter().map(|entry| format!("for={entry};host=\"a,b\"")).collect();
        for lines in [elements.clone(), vec![elements.join(", ")]] {
            for (position, expected) in
                [(1, "192.0.2.66"), (count - 1, "192.0.2.66"), (count, "192.0.2.1"), (count + 1, "missing")]
            {
                assert_eq!(found_in(&ClientIp::forwarded(position), "forwarded", &lines), expected);
            }
        }
    }
}

#[test]
fn a_megabyte_of_any_byte_hides_no_entry_of_a_proxy() {
    for byte in [b',', b'"', b'\\', b' ', b';', b'a', b'\xff'] {
        let mut line = vec![byte; 1_000_000];
        for position in [1, 2, usize::MAX] {
            let by =
                [ClientIp::x_forwarded_for(position), ClientIp::forwarded(position), ClientIp::header("x-real-ip")];
            for (by, header) in by.iter().zip(["x-forwarded-for", "forwarded", "x-real-ip"]) {
                assert_eq!(found_in(by, header, &[&line]), "missing", "{byte}");
            }
        }
        line.extend(b", 192.0.2.1");
        assert_eq!(found_in(&ClientIp::x_forwarded_for(1), "x-forwarded-for", &[&line]), "192.0.2.1", "{byte}");
        line.extend(b", for=192.0.2.1");
        assert_eq!(found_in(&ClientIp::forwarded(1), "forwarded", &[&line]), "192.0.2.1", "{byte}");
    }
}
