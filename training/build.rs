//! Compiles the shim and tells the linker where libtorch is, at build time and at run time.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-changed=build.rs");
    // torch-sys has `links = "tch"`, so it tells its direct dependents where it found libtorch.
    let lib = PathBuf::from(
        std::env::var_os("DEP_TCH_LIBTORCH_LIB").expect("torch-sys says where libtorch is"),
    );
    let root = lib
        .parent()
        .expect("the lib folder lies in libtorch's")
        .to_path_buf();
    let mut shim = compiler(&root);
    // ATen's loops over threads are headers: they must be compiled for the OpenMP that libtorch has,
    // which is GCC's. Without, they run on one thread.
    let openmp = shim.get_compiler().is_like_gnu();
    if openmp {
        shim.flag("-fopenmp");
    }
    shim.include("shim")
        .file("shim/shim.cpp")
        .file("shim/fused.cpp")
        .file("shim/group.cpp")
        .compile("shim");
    rows();
    nccl(&root);
    // The shim comes after torch-sys on the link line, so what it needs is named again.
    println!("cargo:rustc-link-search=native={}", lib.display());
    for library in ["torch_cpu", "c10"] {
        println!("cargo:rustc-link-lib={library}");
    }
    if openmp {
        println!("cargo:rustc-link-lib=gomp");
    }
    // No LD_LIBRARY_PATH: a `torch-lib` beside an installed binary first, then this machine's.
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/torch-lib");
    println!(
        "cargo:rustc-link-arg=-Wl,-rpath,{}",
        root.join("rt").display()
    );
}

/// The loops of the fused operations, for every x86-64 and for those with AVX2.
fn rows() {
    let x86 = std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    let kinds: [(&str, &[&str]); 2] = [("rows_plain", &[]), ("rows_avx2", &["-mavx2", "-mfma"])];
    for (name, flags) in kinds.into_iter().take(if x86 { 2 } else { 1 }) {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++17")
            .opt_level(3)
            .define("ROWS", name)
            .flags(["-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"])
            .flags(flags.iter().copied())
            .file("shim/rows.cpp")
            .compile(name);
    }
}

fn compiler(root: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(1)
        .warnings(false)
        .include(root.join("include"))
        .include(root.join("include/torch/csrc/api/include"))
        .define("_GLIBCXX_USE_CXX11_ABI", "1");
    build
}

/// The library for several GPUs, where CUDA's and NCCL's headers lie beside PyTorch, as a full
/// installation has them. A machine without builds everything else.
fn nccl(root: &Path) {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let library = out.join("libpybench_nccl.so");
    println!("cargo:rustc-env=PYBENCH_NCCL={}", library.display());
    let Ok(rt) = root.join("rt").canonicalize() else {
        return;
    };
    let Some(packages) = rt.ancestors().nth(2) else {
        return;
    };
    // Triton carries the few headers that NVIDIA's runtime package leaves to its compiler's.
    let headers = [
        "nvidia/cu13/include",
        "nvidia/nccl/include",
        "triton/backends/nvidia/include",
    ]
    .map(|folder| packages.join(folder));
    if !headers.iter().all(|folder| folder.is_dir()) {
        return;
    }
    let mut build = compiler(root);
    build.includes(&headers).include("shim/cuda").pic(true);
    let mut command = build.get_compiler().to_command();
    let made = command
        .args(["-shared", "shim/nccl.cpp", "-o"])
        .arg(&library)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        println!("cargo:warning=shim/nccl.cpp was not built: no training on several GPUs");
    }
}
