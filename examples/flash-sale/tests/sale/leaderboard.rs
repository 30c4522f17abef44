//! The order of the leaderboard, and its bounds.

use std::collections::BTreeMap;

use limiter_testkit::{Random, RedisServer};
use serde_json::{Value, json};

use crate::client::{buy, get};
use crate::program::{Program, eventually};

const CLUBS: [&str; 12] =
    ["Athens", "Berlin", "Cairo", "Dakar", "Hanoi", "Kyoto", "Lagos", "Lima", "Lisbon", "Porto", "Riga", "São Paulo"];

/// Buys 90 items for random clubs. Returns gold, silver and bronze of each club, by the answers.
fn sell(program: &Program) -> BTreeMap<String, [u64; 3]> {
    let (mut random, mut medals) = (Random::new(17), BTreeMap::<String, [u64; 3]>::new());
    for buyer in 0..90 {
        // The first clubs have more buyers.
        let highest = 1 + random.below(12);
        let club = CLUBS[usize::try_from(random.below(highest)).expect("small")];
        let answer = buy(program.address, "watch", &json!({ "buyer": format!("b{buyer}"), "club": club })).json();
        let grade = ["gold", "silver", "bronze"].iter().position(|grade| answer["grade"] == *grade);
        medals.entry(club.to_owned()).or_default()[grade.unwrap_or_else(|| panic!("{answer}"))] += 1;
    }
    medals
}

fn row(row: &Value) -> (String, [u64; 3]) {
    let medals = ["gold", "silver", "bronze"].map(|grade| row[grade].as_u64().expect("a number"));
    (row["club"].as_str().expect("a club").to_owned(), medals)
}

#[test]
fn clubs_are_in_the_order_of_gold_then_silver_then_bronze() {
    let server = RedisServer::start();
    let program =
        Program::start(&server, &["--buyers", "0", "--opens-in", "1ms", "--items", "300", "--product-limit", "1000/s"]);
    let medals = sell(&program);
    let board = |top: &str| {
        let answer = get(program.address, &format!("/sales/watch/leaderboard{top}")).json();
        answer["leaderboard"].as_array().expect("rows").clone()
    };
    let rows = board("?top=100");
    let found: Vec<_> = rows.iter().map(row).collect();
    assert_eq!(found.iter().cloned().collect::<BTreeMap<_, _>>(), medals);
    assert!(found.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{found:?}");
    let places: Vec<_> = rows.iter().map(|row| row["place"].as_u64()).collect();
    assert_eq!(places, (1..=u64::try_from(rows.len()).expect("few")).map(Some).collect::<Vec<_>>());
    assert_eq!(board("?top=3"), rows[..3]);
    assert_eq!(board(""), rows[..10]);
    let shown = || get(program.address, "/state").json()["sales"][0]["leaderboard"].clone();
    eventually("the board of the page", || (shown() == Value::from(rows[..10].to_vec())).then_some(()));
}

#[test]
fn scores_are_exact_in_redis_up_to_131071_medals_of_each_grade() {
    let server = RedisServer::start();
    let program = Program::start(&server, &["--buyers", "0", "--opens-in", "1ms"]);
    let clubs = server.keys_with(":watch:stock")[0].replace(":stock", ":clubs");
    // One medal less of each grade, and the last ones by the command of the script.
    let (gold, silver, most) = (1_u64 << 34, 1_u64 << 17, 131_070);
    server.command(&["ZADD", &clubs, &(most * (gold + silver + 1)).to_string(), "Lisbon"]);
    for medal in [gold, silver, 1] {
        server.command(&["ZINCRBY", &clubs, &medal.to_string(), "Lisbon"]);
    }
    let answer = get(program.address, "/sales/watch/leaderboard").json();
    let full = json!({ "place": 1, "club": "Lisbon", "gold": 131_071, "silver": 131_071, "bronze": 131_071 });
    assert_eq!(answer, json!({ "leaderboard": [full] }));
}

#[test]
fn bad_counts_are_refused() {
    let server = RedisServer::start();
    let program = Program::start(&server, &["--buyers", "0"]);
    for top in ["-1", "0", "101", "4294967296", "99999999999999999999", "ten", "", "1&top=2", "%ff"] {
        let answer = get(program.address, &format!("/sales/watch/leaderboard?top={top}"));
        assert_eq!(answer.result(), (400, "bad_request".into()), "{top}");
    }
    assert_eq!(get(program.address, "/sales/car/leaderboard").result(), (404, "unknown_sale".into()));
    assert_eq!(get(program.address, &format!("/sales/{}/leaderboard", "s".repeat(65))).status, 400);
    assert_eq!(get(program.address, "/sales/watch/leaderboard").json(), json!({ "leaderboard": [] }));
}
