//! The servers of a store, found as the limiter finds them.

use rate_limited::redis::{ConnectionAddr, ConnectionInfo, Value, cmd};
use tokio::spawn;

use super::deployment::{Address, Deployment, with_address};
use super::node::{Node, Refusal, field, printable, text};
use super::slot_map::{self, HostPort, Shard};

/// The servers of a store, with a connection to each that has accepted one.
pub(super) struct Servers {
    pub(super) topology: Topology,
    /// Decide calls: one server, the master of the sentinels, or the masters of a cluster.
    pub(super) masters: Vec<Node>,
    pub(super) replicas: Vec<Node>,
    /// Names of masters and replicas without a connection, with the reason.
    pub(super) unreachable: Vec<(String, Refusal)>,
}

/// The parts of a topology that checks need.
pub(super) enum Topology {
    Single,
    /// The map of slots, or the reason why there is none.
    Cluster(Result<Vec<Shard>, Refusal>),
    Sentinels {
        master: String,
        sentinels: Vec<Sentinel>,
    },
}

/// A sentinel of the URL.
pub(super) struct Sentinel {
    pub(super) name: String,
    /// The connection, and the address of the master that it replied.
    pub(super) reply: Result<(Node, Result<Option<HostPort>, Refusal>), Refusal>,
}

impl Servers {
    /// Connects to all servers of the URL.
    pub(super) async fn find(deployment: &Deployment) -> Self {
        match deployment {
            Deployment::Single(info) => {
                let mut servers = Self::without_nodes(Topology::Single);
                servers.connect(vec![info.clone()], Vec::new()).await;
                servers
            }
            Deployment::Cluster(seeds) => find_cluster(seeds).await,
            Deployment::Sentinels { sentinels, master, server } => find_by_sentinels(sentinels, master, server).await,
        }
    }

    /// Returns no server at all.
    pub(super) fn none() -> Self {
        Self::without_nodes(Topology::Single)
    }

    /// Returns all servers that calls may reach, now or after a failover.
    pub(super) fn all(&self) -> impl Iterator<Item = &Node> {
        self.masters.iter().chain(&self.replicas)
    }

    fn without_nodes(topology: Topology) -> Self {
        Self { topology, masters: Vec::new(), replicas: Vec::new(), unreachable: Vec::new() }
    }

    /// Connects to all of these at the same time: each one that does not reply takes seconds.
    async fn connect(&mut self, masters: Vec<ConnectionInfo>, replicas: Vec<ConnectionInfo>) {
        let opening = |infos: Vec<ConnectionInfo>| {
            let open =
                |info: ConnectionInfo| (Address(&info).to_string(), spawn(async move { Node::open(&info).await }));
            infos.into_iter().map(open).collect::<Vec<_>>()
        };
        let (masters, replicas) = (opening(masters), opening(replicas));
        for (opened, nodes) in [(masters, &mut self.masters), (replicas, &mut self.replicas)] {
            for (name, node) in opened {
                match node.await.unwrap_or_else(|_| Err(Refusal::NoReply("interrupted".to_owned()))) {
                    Ok(node) => nodes.push(node),
                    Err(refusal) => self.unreachable.push((name, refusal)),
                }
            }
        }
    }
}

async fn find_cluster(seeds: &[ConnectionInfo]) -> Servers {
    let mut failed = Vec::new();
    for seed in seeds {
        let node = match Node::open(seed).await {
            Ok(node) => node,
            Err(refusal) => {
                failed.push((Address(seed).to_string(), refusal));
                continue;
            }
        };
        let reply = node.send(cmd("CLUSTER").arg("SLOTS")).await;
        let shards = reply.and_then(|reply| {
            slot_map::parse(&reply, host_of(seed)).ok_or_else(|| Refusal::Server("no map of slots".to_owned()))
        });
        let Ok(map) = &shards else {
            // The node itself can be checked.
            let topology = Topology::Cluster(shards);
            return Servers { masters: vec![node], unreachable: failed, ..Servers::without_nodes(topology) };
        };
        let map = map.clone();
        let mut servers = Servers::without_nodes(Topology::Cluster(shards));
        let info = |(host, port): &HostPort| with_address(seed, host, *port);
        let replicas = map.iter().flat_map(|shard| &shard.replicas);
        servers.connect(map.iter().map(|shard| info(&shard.master)).collect(), replicas.map(info).collect()).await;
        return servers;
    }
    let reason = failed.first().map_or(Refusal::Missing, |(_, refusal)| refusal.clone());
    Servers { unreachable: failed, ..Servers::without_nodes(Topology::Cluster(Err(reason))) }
}

async fn find_by_sentinels(infos: &[ConnectionInfo], master: &str, server: &ConnectionInfo) -> Servers {
    let mut sentinels = Vec::new();
    for info in infos {
        let reply = match Node::open(info).await {
            Ok(node) => {
                let reply = node.send(cmd("SENTINEL").arg("get-master-addr-by-name").arg(master)).await;
                Ok((node, reply.map(|reply| parse_address(&reply))))
            }
            Err(refusal) => Err(refusal),
        };
        sentinels.push(Sentinel { name: Address(info).to_string(), reply });
    }
    let known = sentinels.iter().find_map(|sentinel| match &sentinel.reply {
        Ok((node, Ok(Some(address)))) => Some((node.clone(), address.clone())),
        _ => None,
    });
    let mut servers = Servers::without_nodes(Topology::Sentinels { master: master.to_owned(), sentinels });
    if let Some((sentinel, (host, port))) = known {
        let reply = sentinel.send(cmd("SENTINEL").arg("replicas").arg(master)).await;
        let replicas = reply.map(|reply| parse_replicas(&reply)).unwrap_or_default();
        let replicas = replicas.iter().map(|(host, port)| with_address(server, host, *port)).collect();
        servers.connect(vec![with_address(server, &host, port)], replicas).await;
    }
    servers
}

/// Parses an address, an array of host and port. Returns `None` for the reply nil.
fn parse_address(reply: &Value) -> Option<HostPort> {
    let Value::Array(parts) = reply else { return None };
    let [host, port] = &parts[..] else { return None };
    Some((printable(&text(host)?), text(port)?.parse().ok()?))
}

/// Parses the replicas that a sentinel knows and does not consider down.
fn parse_replicas(reply: &Value) -> Vec<HostPort> {
    let Value::Array(replicas) = reply else { return Vec::new() };
    let is_up = |replica: &&Value| !field(replica, "flags").is_some_and(|flags| flags.contains("down"));
    let address = |replica: &Value| Some((printable(&field(replica, "ip")?), field(replica, "port")?.parse().ok()?));
    replicas.iter().filter(is_up).filter_map(address).collect()
}

fn host_of(info: &ConnectionInfo) -> &str {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "",
    }
}
