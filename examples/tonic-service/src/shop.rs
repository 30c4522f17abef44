//! The service `shop.Quotes`: its messages, and the client and the server that `build.rs` generates.

#![expect(unreachable_pub, unused_qualifications, clippy::doc_markdown, reason = "generated code")]

/// The goods that a call is about.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Goods {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

/// The answer to a call.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Answer {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

tonic::include_proto!("shop.Quotes");
