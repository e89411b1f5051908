//! A made-up `/sys`, for cards that no test machine has.

use std::path::{Path, PathBuf};

/// A tree that a daemon reads instead of `/sys`. It lies in a stage.
pub struct Sysfs(PathBuf);

/// A card that does not exist.
#[derive(Debug, Clone, Copy)]
pub struct Card<'a> {
    /// `card1`
    pub name: &'a str,
    /// Its driver: `amdgpu`.
    pub driver: &'a str,
    /// Its PCI address, vendor and model: `("0000:c1:00.0", "1002:744C")`.
    pub pci: Option<(&'a str, &'a str)>,
    /// Its device files and their numbers: `("renderD128", "1:7")`.
    pub nodes: &'a [(&'a str, &'a str)],
    /// Its attributes, below `device`, and their texts.
    pub files: &'a [(&'a str, &'a str)],
}

impl Sysfs {
    /// An empty tree at `root`.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        std::fs::create_dir_all(root.join("class/drm")).expect("a directory");
        Self(root)
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Plugs a card in.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn plug(&self, card: Card<'_>) {
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
        // Last: with it the card is there.
        self.write(&format!("class/drm/{}/device/uevent", card.name), &uevent);
    }

    /// Pulls a card out.
    ///
    /// # Panics
    /// When it is not there.
    pub fn unplug(&self, name: &str) {
        let gone = self.0.join(format!("gone-{name}"));
        // In one step: no daemon should see half a card.
        std::fs::rename(self.0.join("class/drm").join(name), &gone).expect("a card");
        std::fs::remove_dir_all(gone).expect("a card");
    }

    /// Writes one file, in one step.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        let directory = path.parent().expect("a file in a directory");
        std::fs::create_dir_all(directory).expect("a directory");
        let new = directory.join(".new");
        std::fs::write(&new, text).expect("a file");
        std::fs::rename(new, path).expect("a file");
    }

    /// Takes over a tree that was captured on a real box: `from` is copied to
    /// `below`.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn capture(&self, from: &Path, below: &str) {
        copy(from, &self.0.join(below));
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a captured directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a captured file");
        }
    }
}

/// Where captures of real boxes lie, if they are here. Says so when they are
/// not.
#[must_use]
pub fn captures() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let named = std::env::var_os("GPUKILL_CAPTURES").map(PathBuf::from);
    let found = named.into_iter().chain([beside]).find(|path| path.is_dir());
    if found.is_none() {
        super::skip("no captures of real boxes here (GPUKILL_CAPTURES)");
    }
    found
}
