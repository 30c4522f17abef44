//! Slots on the move.

use super::*;

/// A slot of the first master, with two keys in it, and who is to have it.
fn with_two_keys(cluster: &Cluster) -> (u16, NodeId, NodeId) {
    let (from, tag) = key_of_each(cluster).remove(0);
    // The whole name is its own tag, so both keys are in the slot of that.
    let [a, b] = ["a", "b"].map(|end| format!("{{{tag}}}{end}"));
    cluster.server(from).command(&["MSET", &a, "1", &b, "2"]);
    (slot_of(tag.as_bytes()), from, cluster.masters()[1])
}

#[test]
fn a_slot_moves_with_its_keys_and_everybody_knows() {
    let cluster = Cluster::start();
    let (slot, from, to) = with_two_keys(&cluster);
    let keys = cluster.server(from).keys();
    cluster.migrate_slot(slot, to);
    assert_eq!(cluster.master_of(slot), to);
    assert!(cluster.server(from).keys().is_empty());
    assert_eq!(cluster.server(to).keys(), keys);
    let moved = format!("MOVED {slot} {}", cluster.address(to));
    for node in cluster.nodes().into_iter().filter(|node| *node != to) {
        let mut client = cluster.server(node).client().expect("it runs");
        assert_eq!(said(&mut client, &["GET", &keys[0]]).error(), moved, "{node:?}");
    }
}

#[test]
fn a_slot_half_moved_answers_ask_and_try_again() {
    let cluster = Cluster::builder().masters_only().start();
    let (slot, from, to) = with_two_keys(&cluster);
    let keys = cluster.server(from).keys();
    let migration = cluster.begin_migration(slot, to);
    assert_eq!((migration.from(), migration.to()), (from, to));
    migration.move_key(keys[0].as_bytes());
    let [mut old, mut new] = [from, to].map(|node| cluster.server(node).client().expect("it runs"));

    assert_eq!(said(&mut old, &["GET", &keys[1]]).text(), "2");
    assert_eq!(said(&mut old, &["GET", &keys[0]]).error(), format!("ASK {slot} {}", cluster.address(to)));
    assert_eq!(said(&mut new, &["GET", &keys[0]]).error(), format!("MOVED {slot} {}", cluster.address(from)));
    assert_eq!(said(&mut new, &["ASKING"]).text(), "OK");
    assert_eq!(said(&mut new, &["GET", &keys[0]]).text(), "1");
    assert_eq!(said(&mut new, &["ASKING"]).text(), "OK");
    assert!(said(&mut new, &["MGET", &keys[0], &keys[1]]).error().starts_with("TRYAGAIN"));

    assert_eq!(migration.move_keys(5), 1);
    assert_eq!(migration.move_keys(5), 0);
    migration.finish();
    assert_eq!(said(&mut new, &["MGET", &keys[0], &keys[1]]).array().len(), 2);
}

#[test]
fn a_migration_that_is_abandoned_leaves_the_slot_where_it_was() {
    let cluster = Cluster::builder().masters_only().start();
    let (slot, from, to) = with_two_keys(&cluster);
    let missing = format!("{}c", cluster.server(from).keys()[0]);
    let mut client = cluster.server(from).client().expect("it runs");
    let migration = cluster.begin_migration(slot, to);
    assert!(said(&mut client, &["GET", &missing]).error().starts_with("ASK "));
    migration.abandon();
    assert_eq!(said(&mut client, &["GET", &missing]), Reply::Nil);
    assert_eq!(cluster.master_of(slot), from);
}
