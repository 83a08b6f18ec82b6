//! Finding damage in what is kept.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::depot::Depot;
use crate::error::CheckpointError;
use crate::ids::{ObjectId, SnapshotId};
use crate::keep::Live;
use crate::node::Node;
use crate::path::TreePath;
use crate::store::pack;

/// Places of damage that are named.
pub const DAMAGE_MAX: usize = 1000;

/// What looking at everything that is kept has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Objects that were read.
    pub objects: u64,
    /// What is damaged or missing, at most [`DAMAGE_MAX`] places.
    pub damage: Vec<Damage>,
    /// Files of the depot in which damage was found.
    pub files: Vec<PathBuf>,
}

/// One place where something is damaged or missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The object.
    pub object: ObjectId,
    /// The snapshot that needs it.
    pub snapshot: SnapshotId,
    /// Where it was in the project: a file, or a folder of which nothing is known then. `None` for the whole snapshot.
    pub path: Option<TreePath>,
}

impl Depot {
    /// Reads everything that is kept and names what is damaged, and the snapshots that need it. A damaged object is kept
    /// again when its content is found in the project again.
    ///
    /// # Errors
    /// When the depot can not be read.
    pub fn verify(&self) -> Result<Verified, CheckpointError> {
        self.objects.refresh()?;
        let mut verified = Verified::default();
        let mut bad = Vec::new();
        for (pack, objects) in self.objects.packs() {
            let before = bad.len();
            for (id, spot) in objects {
                verified.objects += 1;
                match self.objects.record(&pack.path, spot.place, &id) {
                    Ok((header, stored)) if pack::is_sound(&header, &stored) => {}
                    // It was swept meanwhile.
                    Err(CheckpointError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => break,
                    Ok(_) | Err(_) => bad.push(id),
                }
            }
            if pack.damaged || bad.len() > before {
                verified.files.push(pack.path);
            }
        }
        let bad = self.objects.mend(bad);
        if !bad.is_empty() {
            self.objects.distrust(&bad);
        }
        let mut clean = HashMap::new();
        for listed in self.snapshots()? {
            self.damage_in(listed.id, &mut clean, &mut verified.damage)?;
        }
        Ok(verified)
    }

    /// Finds where a snapshot needs something that is not there. `clean` knows folders in which everything is.
    fn damage_in(
        &self,
        snapshot: SnapshotId,
        clean: &mut HashMap<ObjectId, bool>,
        damage: &mut Vec<Damage>,
    ) -> Result<(), CheckpointError> {
        let mut seen = Live::default();
        let Some(root) = seen.sound(self.root_of(snapshot), snapshot.0)? else {
            // Dropped meanwhile, or damaged.
            if self.holds(snapshot) && damage.len() < DAMAGE_MAX {
                damage.push(Damage { object: snapshot.0, snapshot, path: None });
            }
            return Ok(());
        };
        if !self.objects.holds(&root.outside) && damage.len() < DAMAGE_MAX {
            damage.push(Damage { object: root.outside, snapshot, path: None });
        }
        self.damage_below(snapshot, None, root.tree, clean, damage).map(drop)
    }

    fn damage_below(
        &self,
        snapshot: SnapshotId,
        folder: Option<&TreePath>,
        tree: ObjectId,
        clean: &mut HashMap<ObjectId, bool>,
        damage: &mut Vec<Damage>,
    ) -> Result<bool, CheckpointError> {
        if clean.get(&tree) == Some(&true) || damage.len() >= DAMAGE_MAX {
            return Ok(true);
        }
        let mut seen = Live::default();
        let Some(entries) = seen.sound(self.tree(&tree), tree)? else {
            damage.push(Damage { object: tree, snapshot, path: folder.cloned() });
            return Ok(false);
        };
        let mut whole = true;
        for entry in entries {
            let path = TreePath::join(folder.map_or(&[], TreePath::as_bytes), &entry.name);
            match (&entry.node, entry.tree) {
                (Node::File { content, .. }, _) if !self.objects.holds(content) => {
                    whole = false;
                    if damage.len() < DAMAGE_MAX {
                        damage.push(Damage { object: *content, snapshot, path: Some(path) });
                    }
                }
                (_, Some(below)) => whole &= self.damage_below(snapshot, Some(&path), below, clean, damage)?,
                _ => {}
            }
        }
        clean.insert(tree, whole);
        Ok(whole)
    }
}
