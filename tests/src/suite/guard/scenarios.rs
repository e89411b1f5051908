//! What each rule is told of, and what it is not: over, at the limit, under it, and
//! not known. Real processes of many people break rules together, each a case, and
//! whatever is told of is compared as a whole.

mod access;

mod cast;

mod conduct;

mod counts;

mod growth;

mod hours;

mod idle;

mod logins;

mod measures;

mod memory;

mod part;

mod protect;

mod selectors;

mod told;

mod utilization;

mod victims;

mod waits;

use cast::Cast;
use part::{Hold, Part, holds, holds_unknown};
use told::Told;
