//! What `src/proto/` has of generated code is what `proto/` generates. No protoc is needed, here or to build taskman.

use std::path::Path;

#[test]
fn generated_code_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let new = tempfile::tempdir().expect("a temporary directory");
    let mut compiler = protox::Compiler::new([root.join("proto")]).expect("proto/ exists");
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(["task.proto", "containment.proto"]).expect("proto/ compiles");
    // For reflection: what the service offers, as data.
    std::fs::write(new.path().join("descriptors.bin"), compiler.encode_file_descriptor_set()).expect("written");
    tonic_prost_build::configure()
        .out_dir(new.path())
        // Sorted, so that the same request has the same bytes.
        .btree_map(".")
        // Output travels as it was read, without another copy.
        .bytes(".task_manager.StreamTaskOutputResponse.output")
        .codec_path("crate::proto::codec::Exact")
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .compile_fds(compiler.file_descriptor_set())
        .expect("messages are generated");
    for name in ["descriptors.bin", "task_manager.rs"] {
        let (kept, new) = (root.join("src/proto").join(name), new.path().join(name));
        if std::env::var_os("UPDATE_PROTO").is_some_and(|value| value == "1") {
            std::fs::copy(&new, &kept).expect("src/proto can be written");
        }
        let is_current = std::fs::read(&kept).ok() == std::fs::read(&new).ok();
        assert!(is_current, "src/proto/{name} is not what proto/ generates: UPDATE_PROTO=1 cargo test --test proto");
    }
}
