//! Looks for changes of the files while a server lives.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::EnvoyConfig;
use crate::service::DecisionService;

/// The time between two looks at the files of Envoy's configuration.
const ENVOY_CONFIG_TIME: Duration = Duration::from_secs(1);

/// Looks for changes of Envoy's configuration, as long as the server lives.
pub(crate) fn follow_files(config: &Arc<EnvoyConfig>, service: &Arc<DecisionService>) {
    if config.is_empty() {
        return;
    }
    let (config, service) = (Arc::downgrade(config), Arc::downgrade(service));
    tokio::spawn(async move {
        loop {
            sleep(ENVOY_CONFIG_TIME).await;
            let (Some(config), Some(service)) = (config.upgrade(), service.upgrade()) else { return };
            // It reads files.
            let refresh = move || config.refresh(service.limiter(), || service.read_rules());
            if tokio::task::spawn_blocking(refresh).await.is_err() {
                return;
            }
        }
    });
}
