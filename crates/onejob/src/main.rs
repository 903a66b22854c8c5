//! The `onejob` command. Everything it does is in the library.

/// A node allocates much on one thread and frees it on another: the allocators of some systems take a tenth of its
/// time for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    onejob::cli::main()
}
