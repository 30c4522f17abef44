//! Migrations of slots.

use super::*;

/// Writes two keys of one slot. Returns the slot, its owner (the first master) and another master.
fn write_two_keys(cluster: &Cluster) -> (u16, NodeId, NodeId) {
    let (from, tag) = key_of_each_master(cluster).remove(0);
    // Both keys have the whole name as their hash tag, so both are in its slot.
    let [a, b] = ["a", "b"].map(|end| format!("{{{tag}}}{end}"));
    cluster.server(from).command(&["MSET", &a, "1", &b, "2"]);
    (slot_of(tag.as_bytes()), from, cluster.masters()[1])
}

#[test]
fn a_migrated_slot_has_its_keys_and_every_node_redirects() {
    let cluster = Cluster::start();
    let (slot, from, to) = write_two_keys(&cluster);
    let keys = cluster.server(from).keys();
    cluster.migrate_slot(slot, to);
    assert_eq!(cluster.master_of(slot), to);
    assert!(cluster.server(from).keys().is_empty());
    assert_eq!(cluster.server(to).keys(), keys);
    let moved = format!("MOVED {slot} {}", cluster.address(to));
    for node in cluster.nodes().into_iter().filter(|node| *node != to) {
        let mut client = cluster.server(node).client().expect("it runs");
        assert_eq!(reply_to(&mut client, &["GET", &keys[0]]).error(), moved, "{node:?}");
    }
}

#[test]
fn a_migrating_slot_replies_ask_and_tryagain() {
    let cluster = Cluster::builder().masters_only().start();
    let (slot, from, to) = write_two_keys(&cluster);
    let keys = cluster.server(from).keys();
    let migration = cluster.begin_migration(slot, to);
    assert_eq!((migration.source(), migration.target()), (from, to));
    migration.move_key(keys[0].as_bytes());
    let [mut old, mut new] = [from, to].map(|node| cluster.server(node).client().expect("it runs"));

    assert_eq!(reply_to(&mut old, &["GET", &keys[1]]).text(), "2");
    assert_eq!(reply_to(&mut old, &["GET", &keys[0]]).error(), format!("ASK {slot} {}", cluster.address(to)));
    assert_eq!(reply_to(&mut new, &["GET", &keys[0]]).error(), format!("MOVED {slot} {}", cluster.address(from)));
    assert_eq!(reply_to(&mut new, &["ASKING"]).text(), "OK");
    assert_eq!(reply_to(&mut new, &["GET", &keys[0]]).text(), "1");
    assert_eq!(reply_to(&mut new, &["ASKING"]).text(), "OK");
    assert!(reply_to(&mut new, &["MGET", &keys[0], &keys[1]]).error().starts_with("TRYAGAIN"));

    assert_eq!(migration.move_keys(5), 1);
    assert_eq!(migration.move_keys(5), 0);
    migration.finish();
    assert_eq!(reply_to(&mut new, &["MGET", &keys[0], &keys[1]]).array().len(), 2);
}

#[test]
fn an_abandoned_migration_leaves_the_slot_with_its_owner() {
    let cluster = Cluster::builder().masters_only().start();
    let (slot, from, to) = write_two_keys(&cluster);
    let missing = format!("{}c", cluster.server(from).keys()[0]);
    let mut client = cluster.server(from).client().expect("it runs");
    let migration = cluster.begin_migration(slot, to);
    assert!(reply_to(&mut client, &["GET", &missing]).error().starts_with("ASK "));
    migration.abandon();
    assert_eq!(reply_to(&mut client, &["GET", &missing]), Reply::Nil);
    assert_eq!(cluster.master_of(slot), from);
}
