//! Whose process is it? Names, times and containers, and the texts that
//! processes choose for themselves.

mod containers;

mod hostile;

mod identity;
