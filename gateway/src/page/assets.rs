//! The files of the pages: their style, their scripts and their icon, under names that change with
//! their content.

use crate::document::{Document, respond_immutable};
use crate::parameters::{Parameter, ParameterKind, Parameters, Place};
use crate::problem::Problem;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use std::sync::OnceLock;

/// The name of a file.
pub(crate) const FILE: Parameter = Parameter {
    name: "file",
    place: Place::Path,
    kind: ParameterKind::Text,
    summary: "the name of the file, as the pages have it",
};

/// One module: its parts share functions, and a browser requests it once.
const SCRIPT: &str = concat!(
    include_str!("live.js"),
    include_str!("act.js"),
    include_str!("chart.js"),
    include_str!("heat.js"),
);

const STYLE: &str = include_str!("page.css");

const ICON: &str = include_str!("icon.svg");

/// The files.
pub(super) struct Assets {
    pub(super) style: Asset,
    pub(super) script: Asset,
    pub(super) icon: Asset,
}

/// A file under its name.
pub(super) struct Asset {
    /// Its path.
    pub(super) path: String,
    pub(super) document: Document,
}

impl Asset {
    fn new(extension: &str, media_type: &'static str, text: &str) -> Self {
        let document = Document::file(media_type, text);
        let path = format!("/assets/page.{}.{extension}", document.tag());
        Self { path, document }
    }
}

/// The files, made once.
pub(super) fn assets() -> &'static Assets {
    static MADE: OnceLock<Assets> = OnceLock::new();
    MADE.get_or_init(|| Assets {
        style: Asset::new("css", "text/css; charset=utf-8", STYLE),
        script: Asset::new("js", "text/javascript; charset=utf-8", SCRIPT),
        icon: Asset::new("svg", "image/svg+xml", ICON),
    })
}

/// Answers with a file.
///
/// # Errors
/// There is no such file, as after an upgrade.
pub(crate) fn respond(parameters: &Parameters, headers: &HeaderMap) -> Result<Response, Problem> {
    let name = parameters.text(FILE.name).unwrap_or_default();
    let Assets {
        style,
        script,
        icon,
    } = assets();
    let found = [style, script, icon].into_iter().find(|asset| {
        let known = asset.path.strip_prefix("/assets/");
        known == Some(name)
    });
    match found {
        Some(asset) => Ok(respond_immutable(&asset.document, headers)),
        None => Err(Problem::new(StatusCode::NOT_FOUND, "there is no such file")
            .with_hint("load the page again")),
    }
}
