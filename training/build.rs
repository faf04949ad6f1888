//! Compiles the shim and tells the linker where libtorch is, at build time and at run time.

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=shim/shim.cpp");
    println!("cargo:rerun-if-changed=build.rs");
    // torch-sys has `links = "tch"`, so it tells its direct dependents where it found libtorch.
    let lib = PathBuf::from(
        std::env::var_os("DEP_TCH_LIBTORCH_LIB").expect("torch-sys says where libtorch is"),
    );
    let root = lib
        .parent()
        .expect("the lib folder lies in libtorch's")
        .to_path_buf();
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(1)
        .warnings(false)
        .include(root.join("include"))
        .include(root.join("include/torch/csrc/api/include"))
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .file("shim/shim.cpp")
        .compile("shim");
    // The shim comes after torch-sys on the link line, so what it needs is named again.
    println!("cargo:rustc-link-search=native={}", lib.display());
    for library in ["torch_cpu", "c10"] {
        println!("cargo:rustc-link-lib={library}");
    }
    // No LD_LIBRARY_PATH: a `torch-lib` beside an installed binary first, then this machine's.
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/torch-lib");
    println!(
        "cargo:rustc-link-arg=-Wl,-rpath,{}",
        root.join("rt").display()
    );
}
