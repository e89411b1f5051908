//! A simulated `/sys`, for cards that no test machine has.

use std::path::{Path, PathBuf};

/// A directory in a test box that the daemon reads instead of `/sys`.
pub struct FakeSysfs(PathBuf);

/// A simulated card.
#[derive(Debug, Clone, Copy)]
pub struct FakeCard<'a> {
    /// The name, such as `card1`.
    pub name: &'a str,
    /// The driver, such as `amdgpu`.
    pub driver: &'a str,
    /// PCI address, and vendor and model: `("0000:c1:00.0", "1002:744C")`.
    pub pci: Option<(&'a str, &'a str)>,
    /// Device files and their numbers, such as `("renderD128", "1:7")`.
    pub nodes: &'a [(&'a str, &'a str)],
    /// Attribute files below `device`, and their texts.
    pub files: &'a [(&'a str, &'a str)],
}

impl FakeSysfs {
    /// Creates an empty tree at `root`.
    ///
    /// # Panics
    /// When it cannot be created.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        std::fs::create_dir_all(root.join("class/drm")).expect("a directory");
        Self(root)
    }

    /// The root of the tree.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Adds a card.
    ///
    /// # Panics
    /// When a file cannot be written.
    pub fn add_card(&self, card: FakeCard<'_>) {
        for (file, text) in card.files {
            self.write(&format!("class/drm/{}/device/{file}", card.name), text);
        }
        for (node, number) in card.nodes {
            let file = format!("class/drm/{}/device/drm/{node}/dev", card.name);
            self.write(&file, &format!("{number}\n"));
        }
        let mut uevent = format!("DRIVER={}\n", card.driver);
        if let Some((slot, id)) = card.pci {
            uevent.push_str(&format!("PCI_ID={id}\nPCI_SLOT_NAME={slot}\n"));
        }
        // Written last: the daemon finds a card by it.
        self.write(&format!("class/drm/{}/device/uevent", card.name), &uevent);
    }

    /// Removes a card.
    ///
    /// # Panics
    /// When there is no such card.
    pub fn remove_card(&self, name: &str) {
        let gone = self.0.join(format!("gone-{name}"));
        // In one step, so that the daemon never sees an incomplete card.
        std::fs::rename(self.0.join("class/drm").join(name), &gone).expect("a card");
        std::fs::remove_dir_all(gone).expect("a card");
    }

    /// Writes one file, in one step.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        let directory = path.parent().expect("a file in a directory");
        std::fs::create_dir_all(directory).expect("a directory");
        let new = directory.join(".new");
        std::fs::write(&new, text).expect("a file");
        std::fs::rename(new, path).expect("a file");
    }

    /// Copies a tree that was captured on a real box to `below`.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn copy_capture(&self, from: &Path, below: &str) {
        copy_directory(from, &self.0.join(below));
    }
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a captured directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a captured file");
        }
    }
}

/// The directory with captures of real boxes. Returns `None` and reports the skip where there
/// is none.
#[must_use]
pub fn captures_directory() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let named = std::env::var_os("GPUKILL_CAPTURES").map(PathBuf::from);
    let found = named.into_iter().chain([beside]).find(|path| path.is_dir());
    if found.is_none() {
        super::skip("no captures of real boxes here (GPUKILL_CAPTURES)");
    }
    found
}
