//! How the client is linked: `gpukillctl list` does so little that loading it is a quarter of
//! what it costs.

#[path = "../packaging/linker.rs"]
mod linker;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../packaging/linker.rs");
    // A twentieth of the program.
    linker::fold_equal_functions();
    let on = |what: &str, is: &str| std::env::var(what).is_ok_and(|value| value == is);
    // What unwinds a panic comes with the compiler as a library of its own and as an archive.
    // To map the library and to look its names up takes 35,000 instructions and 8 page faults.
    if on("CARGO_CFG_TARGET_OS", "linux") && on("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
