//! How the client is linked: `gpukillctl list` does so little that loading it is a quarter of
//! what it costs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let on = |what: &str, is: &str| std::env::var(what).is_ok_and(|value| value == is);
    if !on("CARGO_CFG_TARGET_OS", "linux") || !on("CARGO_CFG_TARGET_ENV", "gnu") {
        return;
    }
    // What unwinds a panic comes with the compiler as a library of its own and as an archive.
    // To map the library and to look its names up takes 35,000 instructions and 8 page faults.
    println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    // Functions of the same code are one: a twentieth of the program. For x86-64 alone Rust
    // comes with a linker that can.
    if on("CARGO_CFG_TARGET_ARCH", "x86_64") && on("PROFILE", "release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}
