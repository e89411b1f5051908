//! One loaded copy of the stand-in, and the state that it simulates.

use std::env;
use std::ffi::{CStr, c_char, c_uint};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t, nvmlReturn_t};
use tempfile::TempDir;

/// A library of its own, loaded from a copy: copies share nothing but the process.
pub(crate) struct LoadedLibrary {
    pub(crate) nvml: NvmlLib,
    directory: TempDir,
}

impl LoadedLibrary {
    /// Loads the library and initializes it.
    pub(crate) fn new(state: &str) -> Self {
        let loaded = Self::loaded(&built_library(), state);
        assert_eq!(loaded.init(), 0, "the state is valid");
        loaded
    }

    /// Loads a library of these bytes.
    pub(crate) fn loaded(library: &[u8], state: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("libnvidia-ml.so.1");
        std::fs::write(&path, library).expect("a copy");
        // SAFETY: the library is ours and runs no code when it is loaded.
        let nvml = unsafe { NvmlLib::new(path) }.expect("a library that loads");
        let loaded = Self { nvml, directory };
        loaded.set_state(state);
        loaded
    }

    /// Another mapping of the library, on the same state.
    pub(crate) fn new_mapping(&self) -> Self {
        let state = std::fs::read_to_string(self.state_file()).expect("the state");
        Self::loaded(&built_library(), &state)
    }

    pub(crate) fn init(&self) -> nvmlReturn_t {
        static ENVIRONMENT: Mutex<()> = Mutex::new(());
        let _alone = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the libraries read this variable, and only in `nvmlInit`, which is called only
        // here; all other code that reads the environment in this process goes through std's lock.
        unsafe { env::set_var("FAKE_NVML_STATE", self.state_file()) };
        // SAFETY: it takes no arguments.
        unsafe { self.nvml.nvmlInit_v2() }
    }

    /// Replaces the state.
    pub(crate) fn set_state(&self, state: &str) {
        let new = self.directory.path().join("new");
        std::fs::write(&new, state).expect("a state file");
        std::fs::rename(new, self.state_file()).expect("a state file");
    }

    fn state_file(&self) -> PathBuf {
        self.directory.path().join("state.json")
    }

    /// The handle of the GPU at an index.
    pub(crate) fn gpu(&self, index: c_uint) -> nvmlDevice_t {
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is writable.
        let code = unsafe {
            self.nvml
                .nvmlDeviceGetHandleByIndex_v2(index, &raw mut handle)
        };
        assert_eq!(code, 0, "GPU {index}");
        handle
    }

    /// The MIG device of a GPU at an index, or the error code.
    pub(crate) fn instance(
        &self,
        gpu: nvmlDevice_t,
        index: c_uint,
    ) -> Result<nvmlDevice_t, nvmlReturn_t> {
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is writable.
        let ask = |handle| unsafe {
            self.nvml
                .nvmlDeviceGetMigDeviceHandleByIndex(gpu, index, handle)
        };
        match ask(&raw mut handle) {
            0 => Ok(handle),
            code => Err(code),
        }
    }
}

/// A number that a function writes, or its error code.
pub(crate) fn number<T: Default>(
    ask: impl FnOnce(*mut T) -> nvmlReturn_t,
) -> Result<T, nvmlReturn_t> {
    let mut value = T::default();
    match ask(&raw mut value) {
        0 => Ok(value),
        code => Err(code),
    }
}

/// A text that a function writes, or its error code.
pub(crate) fn text(
    ask: impl FnOnce(*mut c_char, c_uint) -> nvmlReturn_t,
) -> Result<String, nvmlReturn_t> {
    let mut room = [0; 96];
    match ask(room.as_mut_ptr(), 96) {
        // SAFETY: a successful call wrote a C string.
        0 => Ok(unsafe { CStr::from_ptr(room.as_ptr()) }
            .to_string_lossy()
            .into_owned()),
        code => Err(code),
    }
}

/// The newest build of the library. Cargo does not build a C library for a test, so this runs
/// cargo.
pub(crate) fn built_library() -> Vec<u8> {
    static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> Vec<u8> {
    let exe = env::current_exe().expect("a test knows its own path");
    // target/PROFILE/deps/abi-HASH
    let profile = exe.ancestors().nth(2).expect("a build directory");
    let target = profile.parent().expect("a target directory");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .env("CARGO_TARGET_DIR", target)
        .args(["build", "--quiet", "--locked", "--lib"]);
    match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => {}
        Some(name) => {
            command.args(["--profile", name]);
        }
    }
    let status = command.status().expect("cargo can be started");
    assert!(status.success(), "the stand-in does not build");
    std::fs::read(profile.join("libnvidia_ml_stand_in.so")).expect("the built library")
}
