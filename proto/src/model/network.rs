//! The use of a job over TCP.

use serde::{Deserialize, Serialize};

/// How clients outside a job use it over TCP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NetworkRole {
    /// The job listens on no port, or on ports that only the job itself uses.
    Private,
    /// A service: the job listens on these ports, and others use them or may use them.
    Service(Vec<u16>),
    /// A notebook: people use the job through a notebook server that listens on these ports.
    Notebook(Vec<u16>),
}

/// The most ports that are listed for one job, the lowest first.
pub const MAX_PORTS: usize = 16;

impl NetworkRole {
    /// The name on the screen and in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Service(_) => "service",
            Self::Notebook(_) => "notebook",
        }
    }

    /// The ports on which the job can be reached, at most [`MAX_PORTS`].
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        match self {
            Self::Private => &[],
            Self::Service(ports) | Self::Notebook(ports) => ports,
        }
    }

    /// Whether the job is a service.
    #[must_use]
    pub const fn is_service(&self) -> bool {
        matches!(self, Self::Service(_))
    }
}
