// #[rate_limited(key = "getId", window = "10s", max = 5, fallback = degrade_fn)]
// pub async fn get_id(user_id: u64) -> String { load(user_id).await }

pub async fn get_id(user_id: u64) -> String {
    if let ::core::option::Option::Some(denied) = {
        let site = {
            static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                "getId",
            );
            &SITE
        };
        let key = ::rate_limited::__private::Key::new("getId");
        let limit = ::core::result::Result::Ok(
            ::rate_limited::__private::limit(5u32, 10000u64),
        );
        let limiter = ::rate_limited::__private::current();
        ::rate_limited::__private::denied(site, limiter, key, limit).await
    } {
        ::rate_limited::__private::resolve(degrade_fn(user_id)).await
    } else {
        load(user_id).await
    }
}
