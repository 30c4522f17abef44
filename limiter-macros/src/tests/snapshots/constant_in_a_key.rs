// #[rate_limited(key = "{REGION}/{{user}}:{id}!", limit = "5/s", fallback = None)]
// fn get(id: u64) -> Option<u64> { Some(id) }

fn get(id: u64) -> Option<u64> {
    if let ::core::option::Option::Some(denied) = {
        let __site = {
            static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                "{REGION}/{{user}}:{id}!",
            );
            &SITE
        };
        let __key = ::rate_limited::__private::Key::new("")
            .part(
                ::rate_limited::__private::only(
                    ::core::format_args!("{REGION}/{{user}}:{id}!", id = ""),
                    0usize,
                    9usize,
                ),
            )
            .text("/{user}:")
            .part(&(id))
            .text("!");
        let __limit = ::core::result::Result::Ok(
            ::rate_limited::__private::limit(5u32, 1000u64),
        );
        let __limiter = ::rate_limited::__private::current();
        ::rate_limited::__private::denied_blocking(__site, __limiter, __key, __limit)
    } {
        None
    } else {
        Some(id)
    }
}
