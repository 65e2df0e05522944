//! Reading the tree: every text file that belongs to the repository, by a walk that passes build output over.

use std::fs;
use std::path::Path;

/// Folders that hold no source of ours wherever they stand (`.git` of a linked working tree is a file).
const PASSED_OVER: &[&str] = &[".git", "target", "__pycache__", "node_modules"];

/// Files larger than this are data, not text to check (bytes).
const LARGEST: u64 = 1 << 20;

/// One text file.
#[derive(Debug)]
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    /// The whole content.
    pub(crate) text: String,
}

/// All UTF-8 files under `root`, sorted by path. Files that are not UTF-8 or over a mebibyte are passed over.
///
/// # Errors
/// A sentence that names the path that could not be read.
pub(crate) fn text_files(root: &Path) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    collect(root, "", &mut files)?;
    files.sort_by(|a: &File, b| a.path.cmp(&b.path));
    Ok(files)
}

/// The text of one file.
///
/// # Errors
/// A sentence with the path and the reason.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("list {}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        // A file may vanish between the listing and the look: an editor's or a compiler's temporary one.
        let Ok(metadata) = fs::symlink_metadata(entry.path()) else { continue };
        if PASSED_OVER.contains(&name.as_str()) {
            continue;
        }
        if metadata.is_dir() {
            collect(&entry.path(), &path, files)?;
        } else if metadata.is_file()
            && metadata.len() <= LARGEST
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            files.push(File { path, text });
        }
    }
    Ok(())
}
