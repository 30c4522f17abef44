//! Generates the client and the server of `shop.Quotes`. The service is described here and not in a `.proto` file, so the
//! build needs no protoc.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let method = |name: &str, route: &str| {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type("super::Goods")
            .output_type("super::Answer")
            .codec_path("tonic_prost::ProstCodec")
            .build()
    };
    let service = Service::builder().name("Quotes").package("shop");
    let service = service.method(method("quote", "Quote")).method(method("stock", "Stock")).build();
    Builder::new().compile(&[service]);
}
