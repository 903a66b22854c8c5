//! The fuzz targets with small input, so that they cannot rot.

use std::path::Path;

use super::*;

const MUTATIONS: usize = 20_000;

/// The corpus of a target, in the order of the names.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "the corpus is checked in");
    files.into_iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Random numbers whose seed is printed; `ONEJOB_SEED` replays a run.
fn random() -> fastrand::Rng {
    let seed =
        std::env::var("ONEJOB_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("ONEJOB_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// Changes some bytes: one for another, pieces doubled, cut, put in.
fn mutated(rng: &mut fastrand::Rng, corpus: &[Vec<u8>], pieces: &[&[u8]]) -> Vec<u8> {
    let mut bytes = corpus[rng.usize(..corpus.len())].clone();
    for _ in 0..rng.usize(1..5) {
        let at = rng.usize(..=bytes.len());
        let end = rng.usize(at..=bytes.len().min(at + 8));
        match rng.u8(..6) {
            0 if at < bytes.len() => bytes[at] = rng.u8(..),
            1 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let doubled = bytes[at..end].to_vec();
                bytes.splice(at..at, doubled);
            }
            4 => bytes.truncate(at),
            _ => drop(bytes.splice(at..at, pieces[rng.usize(..pieces.len())].iter().copied())),
        }
    }
    bytes
}

fn run(target: &str, pieces: &[&[u8]], check: fn(&[u8])) -> (usize, Vec<Vec<u8>>) {
    let corpus = corpus(target);
    corpus.iter().for_each(|bytes| check(bytes));
    let mut rng = random();
    let mut tried = Vec::new();
    for _ in 0..MUTATIONS {
        let bytes = mutated(&mut rng, &corpus, pieces);
        if std::panic::catch_unwind(|| check(&bytes)).is_err() {
            panic!("{target} fails on {:?} ({bytes:?})", String::from_utf8_lossy(&bytes));
        }
        tried.push(bytes);
    }
    (corpus.len(), tried)
}

#[test]
fn any_bytes_at_all_are_read_as_json_or_refused() {
    let pieces: [&[u8]; 24] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\\",
        b"\"a\":",
        b"1e",
        b"-",
        b"0.",
        b"E+99",
        b"null",
        b"\\u0000",
        b"\\ud83d",
        b"\\ude00",
        b"\xed\xa0\x80",
        b"\xff",
        b"\0",
        b"\xef\xbb\xbf",
        b" \n",
        b"\"$serde_json::private::Number\":",
        b"999999999999999",
    ];
    let (_, tried) = run("strict_json", &pieces, strict_json);
    let accepted = tried.iter().filter(|bytes| json::parse(bytes, Duplicates::Refused, MAX_DEPTH).is_ok()).count();
    assert!(accepted > MUTATIONS / 50 && accepted < MUTATIONS * 49 / 50, "{accepted} accepted: both ways are tried");
}

#[test]
fn any_bytes_at_all_are_read_as_a_key_or_refused() {
    let pieces: [&[u8]; 10] =
        [b"\"", b"\\", b",", b" ", b"\n", b";p=1", b"\x7f", b"\xc3\xa9", b"~", b"aaaaaaaaaaaaaaaa"];
    let (_, tried) = run("key_header", &pieces, key_header);
    let accepted = tried.iter().filter(|bytes| intent::parse_key([&bytes[..]]).is_ok()).count();
    assert!(accepted > MUTATIONS / 50 && accepted < MUTATIONS * 49 / 50, "{accepted} accepted: both ways are tried");
}
