//! How others use a job over TCP.

use serde::{Deserialize, Serialize};

/// How others use the job of a process over TCP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NetworkRole {
    /// It listens on no port, or on ports that only the job itself uses.
    Private,
    /// It is a service: it listens on these ports, which others use or may use.
    Service(Vec<u16>),
    /// It is a notebook: people use it through a notebook server that listens on these
    /// ports.
    Notebook(Vec<u16>),
}

/// As many ports of one job are listed, the lowest first.
pub const MAX_PORTS: usize = 16;

impl NetworkRole {
    /// As it is written on the screen and in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Service(_) => "service",
            Self::Notebook(_) => "notebook",
        }
    }

    /// The ports on which it can be reached, at most [`MAX_PORTS`].
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        match self {
            Self::Private => &[],
            Self::Service(ports) | Self::Notebook(ports) => ports,
        }
    }

    /// Whether it is a service.
    #[must_use]
    pub const fn is_service(&self) -> bool {
        matches!(self, Self::Service(_))
    }
}
