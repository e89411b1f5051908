//! Makes the linker fold equal functions: this saves a million bytes of `gpukilld`, most of them
//! std's sort for each place that collects a map.

#[path = "../packaging/linker.rs"]
mod linker;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../packaging/linker.rs");
    linker::fold_equal_functions();
}
