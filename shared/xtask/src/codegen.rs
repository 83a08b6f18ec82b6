//! `cargo xtask codegen`: Rust code and the descriptor set of `mcode.v1`.
//!
//! protox reads the `.proto` files, so neither protoc nor a build script is needed and a build of the workspace never
//! generates anything: what is committed is what is compiled.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Messages with secrets or bulk in them; `proto/src/lib.rs` writes their `Debug`.
const HAND_WRITTEN_DEBUG: &[&str] = &[
    ".mcode.v1.AddProviderRequest",
    ".mcode.v1.ClientContext",
    ".mcode.v1.CompleteLoginRequest",
    ".mcode.v1.ExportThreadResponse",
    ".mcode.v1.ListModelsRequest",
    ".mcode.v1.ListPacksRequest",
    ".mcode.v1.ListProvidersRequest",
    ".mcode.v1.Media",
    ".mcode.v1.RefreshCatalogueRequest",
    ".mcode.v1.ScanProvidersRequest",
    ".mcode.v1.StartLoginRequest",
    ".mcode.v1.UsePackRequest",
];

/// Generates into `proto/src/gen` below `root`, or compares with it.
pub(crate) fn run(root: &Path, check: bool) -> anyhow::Result<()> {
    let made = generate(root)?;
    let folder = root.join("proto/src/gen");
    if check {
        for (name, content) in &made {
            let path = folder.join(name);
            if fs::read(&path).ok().as_ref() != Some(content) {
                bail!("{} is not what proto/mcode/v1 gives: run 'cargo xtask codegen' and commit", path.display());
            }
        }
        return Ok(());
    }
    fs::create_dir_all(&folder).with_context(|| format!("can not make {}", folder.display()))?;
    for (name, content) in &made {
        let path = folder.join(name);
        write(&path, content)?;
    }
    Ok(())
}

/// The generated files by name.
fn generate(root: &Path) -> anyhow::Result<Vec<(&'static str, Vec<u8>)>> {
    let include = root.join("proto");
    let mut compiler = protox::Compiler::new([&include]).context("can not read the folder proto")?;
    // Without the imports reflection can not explain the well-known types; with source info comments become rustdoc.
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(proto_files(&include)?).context("the .proto files do not compile")?;
    let scratch = root.join("target/codegen");
    fs::create_dir_all(&scratch).with_context(|| format!("can not make {}", scratch.display()))?;
    tonic_prost_build::configure()
        .out_dir(&scratch)
        .emit_rerun_if_changed(false)
        .btree_map(".")
        .skip_debug(HAND_WRITTEN_DEBUG)
        .compile_fds(compiler.file_descriptor_set())
        .context("can not generate code")?;
    let code = fs::read(scratch.join("mcode.v1.rs")).context("no code was generated")?;
    let mut bare = protox::Compiler::new([&include]).context("can not read the folder proto")?;
    bare.include_imports(true);
    bare.open_files(proto_files(&include)?).context("the .proto files do not compile")?;
    // The compiler's own encoding keeps custom options, which re-encoding parsed descriptors would lose.
    Ok(vec![("mcode.v1.rs", code), ("descriptors.bin", bare.encode_file_descriptor_set())])
}

/// All `.proto` files of `mcode.v1`, in order of their names.
fn proto_files(include: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = include.join("mcode/v1");
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("can not read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    use std::io::Write;
    let mut file = fs::File::create(path).with_context(|| format!("can not write {}", path.display()))?;
    file.write_all(content).with_context(|| format!("can not write {}", path.display()))
}
