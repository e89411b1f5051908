//! What each driver calls its engines and its memory.
