//! The messages of `proto/*.proto`. They are written by hand, so that no build needs a compiler of them: a test compares both.

/// A request of Envoy.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    pub(crate) hits_addend: u32,
}

/// A list of entries that one limit counts.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Entry>,
    #[prost(message, optional, tag = "2")]
    pub(crate) limit: Option<RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    pub(crate) hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    pub(crate) is_negative_hits: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Entry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RateLimitOverride {
    #[prost(uint32, tag = "1")]
    pub(crate) requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub(crate) unit: i32,
}

/// The answer to Envoy.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RateLimitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(crate) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) response_headers_to_add: Vec<HeaderValue>,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) raw_body: Vec<u8>,
    #[prost(message, optional, tag = "6")]
    pub(crate) dynamic_metadata: Option<prost_types::Struct>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DescriptorStatus {
    #[prost(enumeration = "Code", tag = "1")]
    pub(crate) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) current_limit: Option<RateLimit>,
    #[prost(uint32, tag = "3")]
    pub(crate) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) duration_until_reset: Option<prost_types::Duration>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RateLimit {
    #[prost(uint32, tag = "1")]
    pub(crate) requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub(crate) unit: i32,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Unit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    pub(crate) service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub(crate) status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Lists `message.field=tag`, and `enum.value=number`, of a text of either language.
    fn fields_of(
        text: &str,
        item_of: impl Fn(&str) -> Option<String>,
        field_of: impl Fn(&str) -> Option<String>,
    ) -> BTreeSet<String> {
        let (mut items, mut fields) = (Vec::new(), BTreeSet::new());
        for line in text.lines().map(str::trim) {
            if let Some(item) = item_of(line) {
                items.push(item);
            } else if line == "}" {
                items.pop();
            } else if let (Some(item), Some(field)) = (items.last(), field_of(line)) {
                fields.insert(format!("{item}.{field}"));
            }
        }
        fields
    }

    #[test]
    fn the_messages_have_the_names_and_tags_of_the_proto_files() {
        let named = |line: &str, starts: &[&str]| {
            let rest = starts.iter().find_map(|start| line.strip_prefix(start))?;
            Some(rest.split([' ', '{']).next()?.to_owned())
        };
        let of_proto = |text: &str| {
            fields_of(
                text,
                |line| named(line, &["message ", "enum ", "service "]),
                |line| {
                    let (name, tag) = line.strip_suffix(';')?.split_once(" = ")?;
                    Some(format!("{}={tag}", name.rsplit(' ').next()?.replace('_', "").to_lowercase()))
                },
            )
        };
        let mut proto = of_proto(include_str!("../../proto/ratelimit.proto"));
        proto.extend(of_proto(include_str!("../../proto/health.proto")));
        let source = include_str!("messages.rs").split("#[cfg(test)]").next().expect("the messages");
        // A field has its tag in the line before.
        let joined = source.replace(")]\n    pub(crate) ", ")] ");
        let rust = fields_of(
            &joined,
            |line| named(line, &["pub(crate) struct ", "pub(crate) enum "]),
            |line| match line.split_once("tag = \"") {
                Some((_, rest)) => {
                    let (tag, rest) = rest.split_once('"')?;
                    Some(format!("{}={tag}", rest.strip_prefix(")] ")?.split(':').next()?.replace('_', "")))
                }
                None => Some(line.strip_suffix(',')?.replace(" = ", "=").to_lowercase()),
            },
        );
        assert_eq!(rust, proto);
        assert!(rust.contains("RateLimitDescriptor.isnegativehits=4"), "{rust:?}");
    }
}
