//! Compiles the shim and tells the linker where libtorch is, at build time and at run time.

use std::path::{Path, PathBuf};

/// Those that PyTorch 2.11 has wheels for, from the oldest that the project supports.
const PYTHONS: [&str; 4] = ["python3.11", "python3.12", "python3.13", "python3.14"];

fn main() {
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-changed=build.rs");
    // torch-sys has `links = "tch"`, so cargo passes its libtorch folder to direct dependents.
    let lib = PathBuf::from(
        std::env::var_os("DEP_TCH_LIBTORCH_LIB").expect("torch-sys says where libtorch is"),
    );
    let root = lib
        .parent()
        .expect("the lib folder lies in libtorch's")
        .to_path_buf();
    let mut shim = compiler(&root);
    // ATen's parallel loops are in headers and need the OpenMP of libtorch, which is GCC's. Without it they
    // run on one thread.
    let openmp = shim.get_compiler().is_like_gnu();
    if openmp {
        shim.flag("-fopenmp");
    }
    shim.include("shim").include(kernels_text());
    shim.file(one_unit()).compile("shim");
    emulation();
    loops();
    nccl(&root);
    // The shim is linked after torch-sys, so its libraries must be listed again.
    println!("cargo:rustc-link-search=native={}", lib.display());
    for library in ["torch_cpu", "c10"] {
        println!("cargo:rustc-link-lib={library}");
    }
    if openmp {
        println!("cargo:rustc-link-lib=gomp");
    }
    // Search a folder `torch-lib` beside the binary first, then the PyTorch of the environment that a wheel was
    // installed into, then this machine's libtorch.
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/torch-lib");
    for python in PYTHONS {
        println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib/{python}/site-packages/torch/lib");
    }
    let libraries = root.join("rt");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libraries.display());
    println!("cargo:rustc-env=PYBENCH_LIBTORCH={}", libraries.display());
}

/// Where the build script writes.
fn out_dir() -> PathBuf {
    PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
}

/// Writes a file that includes those that use libtorch, whose headers take the compiler seven seconds each time.
fn one_unit() -> PathBuf {
    let files = [
        "shim", "fused", "product", "nf4", "loops", "adamw", "kernels", "gpu", "group",
    ];
    let unit = out_dir().join("unit.cpp");
    let text: String = files
        .iter()
        .map(|file| format!("#include \"{file}.cpp\"\n"))
        .collect();
    std::fs::write(&unit, text).expect("OUT_DIR can be written to");
    unit
}

/// The loops of the fused operations and of NF4, for any processor and for extensions of x86-64.
fn loops() {
    let x86 = std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    let avx2: &[&str] = &["-mavx2", "-mfma"];
    let avx512: &[&str] = &["-mavx2", "-mavx512f", "-mavx512bw"];
    let kinds = [
        ("rows", "ROWS", "rows_plain", [].as_slice()),
        ("nf4_blocks", "NF4_BLOCKS", "nf4_portable", &[]),
        ("rows", "ROWS", "rows_avx2", avx2),
        ("nf4_blocks", "NF4_BLOCKS", "nf4_avx2", avx2),
        ("nf4_blocks", "NF4_BLOCKS", "nf4_avx512", avx512),
    ];
    for (file, symbol, name, flags) in kinds.into_iter().take(if x86 { 5 } else { 2 }) {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++17")
            .opt_level(3)
            .define(symbol, name)
            .flags(["-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"])
            .flags(flags.iter().copied());
        if file == "nf4_blocks" {
            // The same bits with and without fused multiplication and addition. GCC 12 warns of its own intrinsics.
            build.flag("-ffp-contract=off").warnings(false);
        }
        build.file(format!("shim/{file}.cpp")).compile(name);
    }
}

/// Writes `kernels_text.h`, the source of the kernels as a C++ string for NVRTC. Returns its folder.
fn kernels_text() -> PathBuf {
    let out = out_dir();
    let parts = ["shim/arguments.h", "shim/kernels.cu"];
    let text: String = parts
        .map(|file| std::fs::read_to_string(file).expect("the shim is here"))
        .concat();
    let literal = format!("R\"KERNELS({text})KERNELS\"\n");
    std::fs::write(out.join("kernels_text.h"), literal).expect("OUT_DIR can be written to");
    out
}

/// The kernels compiled as C++, for tests.
fn emulation() {
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(1)
        .flag("-pthread")
        .file("shim/emulate.cpp")
        .compile("emulation");
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

/// Builds the library for several GPUs if a full PyTorch installation provides the headers of CUDA and NCCL.
fn nccl(root: &Path) {
    let library = out_dir().join("libpybench_nccl.so");
    println!("cargo:rustc-env=PYBENCH_NCCL={}", library.display());
    let Ok(rt) = root.join("rt").canonicalize() else {
        return;
    };
    let Some(packages) = rt.ancestors().nth(2) else {
        return;
    };
    // Triton contains headers that are missing in NVIDIA's runtime package.
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
