//! `limiter dashboard`: the page about all limiters, in a browser.

use std::env;

use limiter_dashboard::Dashboard;
use serde_json::json;

use crate::arguments::DashboardArguments;
use crate::bounded_input;
use crate::connection::{Connection, warn_of_password};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// The environment variable with the token.
const TOKEN_VARIABLE: &str = "LIMITER_DASHBOARD_TOKEN";

/// Serves the page until the program is ended.
pub(crate) async fn run(
    arguments: &DashboardArguments,
    connection: &Connection,
    output: &Output,
) -> Result<Exit, Failure> {
    connection.require_shared("dashboard")?;
    let DashboardArguments { listen, token_file, operator_url, operator_url_file, host, insecure } = arguments;
    let token = match token_file {
        Some(file) => Some(bounded_input::read_line(file)?),
        None => env::var(TOKEN_VARIABLE).ok(),
    };
    let operator = match (operator_url, operator_url_file) {
        (Some(url), _) => {
            warn_of_password("--operator-url", url, "`--operator-url-file`", output);
            Some(url.clone())
        }
        (None, Some(file)) => Some(bounded_input::read_line(file)?),
        (None, None) => None,
    };
    let mut dashboard = Dashboard::new(connection.limiter().await?).hosts(host);
    if let Some(token) = &token {
        dashboard = dashboard.token(token);
    }
    if let Some(url) = &operator {
        dashboard = dashboard.operator(url);
    }
    if *insecure {
        dashboard = dashboard.insecure();
    }
    let server = dashboard.bind(*listen).await.map_err(|error| Failure::usage(error.to_string()))?;
    let address = format!("http://{}/", server.address());
    if output.is_json() {
        output.json(&json!({ "address": address, "token": token.is_some(), "edits": operator.is_some() }))?;
    } else {
        output.line(&address)?;
        if token.is_none() {
            output.note(format_args!(
                "without a token the page has rates and counts alone: write `--token-file FILE`, or set {TOKEN_VARIABLE}"
            ));
        }
    }
    server.run().await;
    Ok(Exit::SUCCESS)
}
