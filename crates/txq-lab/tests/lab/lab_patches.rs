//! The errors that `errors/README.md` asks the reader to plant still apply to the code: `git apply --check` of each patch.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_patches_of_the_tutorial_apply() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    // In a worktree `.git` is a file.
    if !root.join(".git").exists() {
        return println!("SKIP lab_patches: needs the repository (.git)");
    }
    if Command::new("git").arg("--version").output().is_err() {
        return println!("SKIP lab_patches: needs git");
    }
    let folder = root.join("crates/txq-lab/errors");
    let files = fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let patches: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "patch")).collect();
    assert!(patches.len() >= 3, "patches in {}: {patches:?}", folder.display());
    let tutorial = fs::read_to_string(folder.join("README.md")).expect("a tutorial");
    for patch in patches {
        let mut git = Command::new("git");
        let ended = git.arg("apply").arg("--check").arg(&patch).current_dir(root).output().expect("git");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{} does not apply: {said}", patch.display());
        // The tutorial shows each patch unchanged.
        let text = fs::read_to_string(&patch).expect("a patch");
        assert!(tutorial.contains(text.trim_end()), "errors/README.md shows {} otherwise", patch.display());
    }
}
