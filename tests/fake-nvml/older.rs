//! Simulates an older driver's library by removing some of its functions.
//!
//! This is not a module of the stand-in, which cannot remove an exported function. A test includes
//! this file by its path and loads a changed copy of the built library.
//!
//! In the ELF file a function's name is in the string table `.dynstr`, between the NUL that ends
//! the previous name and its own. After the first letter is changed there, the hash table still
//! leads to the entry, but the name differs: `dlsym` finds no such symbol. The same bytes in
//! `.strtab`, which only debuggers read, change too. Nothing moves, and the other functions are not
//! touched.

/// Returns the library without these functions.
///
/// # Panics
/// When the library does not have one of them.
#[must_use]
pub(crate) fn without(library: &[u8], functions: &[&str]) -> Vec<u8> {
    let mut changed = library.to_vec();
    for function in functions {
        let name: Vec<u8> = [b"\0", function.as_bytes(), b"\0"].concat();
        let places: Vec<usize> = changed
            .windows(name.len())
            .enumerate()
            .filter_map(|(place, bytes)| (bytes == name).then_some(place))
            .collect();
        assert!(!places.is_empty(), "the library has no {function}");
        for place in places {
            // No NVML function begins with it.
            changed[place + 1] = b'-';
        }
    }
    changed
}
