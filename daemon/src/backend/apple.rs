//! Apple, through `ioreg`, wherever that answers.
