//! Writes answers through the caller's pointers: NULL is checked, and no write leaves the buffer.

use std::ffi::{c_char, c_uint};
use std::mem::MaybeUninit;
use std::ptr;

use crate::code::{Answer, Code};
use crate::state::Gpu;

/// A pointer to one value to fill in. In C it is a plain pointer: `None` is NULL, and `MaybeUninit`
/// because the caller need not have initialized the value.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Writes one value.
pub(crate) fn put<T>(value: T, out: Out<T>) -> Answer {
    out.ok_or(Code::INVALID_ARGUMENT)?.write(value);
    Ok(())
}

/// Writes a value that this GPU may not have.
pub(crate) fn put_known<T>(value: Option<T>, out: Out<T>) -> Answer {
    put(value.ok_or(Code::NOT_SUPPORTED)?, out)
}

/// Writes a text with its NUL.
///
/// # Safety
/// `buffer` is NULL, or `room` bytes there are writable.
pub(crate) unsafe fn put_text(text: &str, buffer: *mut c_char, room: c_uint) -> Answer {
    if buffer.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    if text.len() >= room as usize {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller guarantees `room` bytes, and the text and its NUL fit in them.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, text.len());
        buffer.add(text.len()).write(0);
    }
    Ok(())
}

/// Writes a list of a GPU, which the state may make grow after the caller asked for its length.
///
/// # Safety
/// As [`put_list`].
pub(crate) unsafe fn put_growing_list<T: Copy>(
    gpu: &Gpu,
    list: &[T],
    count: Option<&mut c_uint>,
    buffer: *mut T,
) -> Answer {
    let count = count.ok_or(Code::INVALID_ARGUMENT)?;
    if fits(list, *count as usize, buffer) && gpu.grows() {
        *count = count.saturating_add(1);
        return Err(Code::INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller guarantees the same.
    unsafe { put_list(list, Some(count), buffer) }
}

fn fits<T>(list: &[T], room: usize, buffer: *mut T) -> bool {
    list.is_empty() || (!buffer.is_null() && room >= list.len())
}

/// Writes a list by NVML's two-call protocol: `count` is the room on input and the length on
/// output; with too little room (or NULL) the caller must call again with more.
///
/// # Safety
/// `buffer` is NULL, or `count` items there are writable.
pub(crate) unsafe fn put_list<T: Copy>(
    list: &[T],
    count: Option<&mut c_uint>,
    buffer: *mut T,
) -> Answer {
    let count = count.ok_or(Code::INVALID_ARGUMENT)?;
    let room = *count as usize;
    *count = c_uint::try_from(list.len()).map_err(|_| Code::UNKNOWN)?;
    if list.is_empty() {
        return Ok(());
    }
    if !fits(list, room, buffer) {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller guarantees `room` items, and the list is no longer than that.
    unsafe { ptr::copy_nonoverlapping(list.as_ptr(), buffer, list.len()) };
    Ok(())
}
