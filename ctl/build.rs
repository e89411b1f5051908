//! Link options of the client. Loading the program is a quarter of the cost of `gpukillctl
//! list`.

#[path = "../packaging/linker.rs"]
mod linker;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../packaging/linker.rs");
    // This saves a twentieth of the program's size.
    linker::fold_equal_functions();
    let on = |what: &str, is: &str| std::env::var(what).is_ok_and(|value| value == is);
    // The compiler brings the unwinder as a shared library and as an archive. Mapping the
    // shared library and resolving its symbols takes 35,000 instructions and 8 page faults.
    if on("CARGO_CFG_TARGET_OS", "linux") && on("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
