//! A container image as one file: an OCI image layout in a tar file.
//!
//! ```text
//! index.json ─► manifest ─┬─► config: what is started, as which user, where it listens
//!                         └─► layer: a tar file with the binary and the licences
//! ```
//!
//! All three are named by their hashes (OCI image specification 1.1).

use std::collections::BTreeSet;
use std::io;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// The contents of an image.
pub(super) struct Image<'a> {
    pub(super) architecture: &'static str,
    pub(super) version: &'a str,
    pub(super) program: &'a [u8],
    pub(super) licences: &'a [(String, Vec<u8>)],
}

const LAYOUT: &str = "oci-layout";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// A numeric user that no host has; the image has no names of users.
const USER: &str = "65532:65532";
/// The mount point for a folder, which is served by default.
const FOLDER: &str = "/srv";
/// Listening addresses are in the environment, so that they apply with any arguments.
const LISTEN: &str = "UNDERPASS_LISTEN=0.0.0.0:8080";
const PORT: &str = "8080/tcp";
const PROGRAM: &str = "usr/bin/underpass";
const LICENCES: &str = "usr/share/doc/underpass";
/// Bytes that are named by their hash.
struct Blob {
    media: &'static str,
    bytes: Vec<u8>,
}

impl Image<'_> {
    /// Returns the whole image, and the digest by which registries and users name it.
    pub(super) fn archive(&self) -> io::Result<(Vec<u8>, String)> {
        let [layer, config, manifest] = self.blobs()?;
        let name = format!("underpass:{}", self.version);
        let mut described = manifest.descriptor();
        described["platform"] = json!({"architecture": self.architecture, "os": "linux"});
        described["annotations"] = json!({
            "org.opencontainers.image.ref.name": name,
            "io.containerd.image.name": format!("localhost/{name}"),
        });
        let index = json!({
            "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [described],
        });
        let index = index.to_string();
        let layout = br#"{"imageLayoutVersion":"1.0.0"}"#.as_slice();
        let mut entries = vec![
            (LAYOUT.to_owned(), layout, 0o644),
            ("index.json".to_owned(), index.as_bytes(), 0o644),
        ];
        let blobs = [&layer, &config, &manifest].map(|blob| {
            let name = format!("blobs/sha256/{}", blob.digest());
            (name, blob.bytes.as_slice(), 0o644)
        });
        entries.extend(blobs);
        Ok((tar(&entries)?, manifest.digest()))
    }

    fn blobs(&self) -> io::Result<[Blob; 3]> {
        let layer = Blob {
            media: LAYER_TYPE,
            bytes: self.layer()?,
        };
        let config = Blob::json(CONFIG_TYPE, &self.config(&layer));
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        });
        let manifest = Blob::json(MANIFEST_TYPE, &manifest);
        Ok([layer, config, manifest])
    }

    /// Returns the tar file with the files.
    fn layer(&self) -> io::Result<Vec<u8>> {
        let mut entries = vec![(PROGRAM.to_owned(), self.program, 0o755)];
        let licences = self.licences.iter();
        entries.extend(
            licences.map(|(name, text)| (format!("{LICENCES}/{name}"), text.as_slice(), 0o644)),
        );
        tar(&entries)
    }

    fn config(&self, layer: &Blob) -> Value {
        json!({
            // Nothing depends on the time of the build.
            "created": "1970-01-01T00:00:00Z",
            "architecture": self.architecture,
            "os": "linux",
            "config": {
                "User": USER,
                "ExposedPorts": {PORT: {}},
                "Env": ["PATH=/usr/bin", LISTEN],
                "Entrypoint": [format!("/{PROGRAM}")],
                "Cmd": ["serve", FOLDER],
                "WorkingDir": FOLDER,
                "Labels": {
                    "org.opencontainers.image.title": "underpass",
                    "org.opencontainers.image.description":
                        "Moves bytes between files and sockets underneath user space",
                    "org.opencontainers.image.version": self.version,
                    "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", layer.digest())]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "cargo xtask release"}],
        })
    }
}

impl Blob {
    fn json(media: &'static str, value: &Value) -> Blob {
        let bytes = value.to_string().into_bytes();
        Blob { media, bytes }
    }

    fn digest(&self) -> String {
        let hash = Sha256::digest(&self.bytes);
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn descriptor(&self) -> Value {
        json!({
            "mediaType": self.media,
            "digest": format!("sha256:{}", self.digest()),
            "size": self.bytes.len(),
        })
    }
}

/// Returns a tar file of files and their folders, without times and users: the same content gives
/// the same bytes.
fn tar(files: &[(String, &[u8], u32)]) -> io::Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    let mut append = |name: &str, kind, content: &[u8], mode| {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        tar.append_data(&mut header, name, content)
    };
    let mut folders = BTreeSet::new();
    for (name, content, mode) in files {
        for (end, _) in name.match_indices('/') {
            if folders.insert(&name[..=end]) {
                append(&name[..=end], EntryType::Directory, &[], 0o755)?;
            }
        }
        append(name, EntryType::Regular, content, *mode)?;
    }
    tar.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(program: &[u8]) -> Vec<u8> {
        let licences = [("LICENSE".to_owned(), b"text".to_vec())];
        let image = Image {
            architecture: "amd64",
            version: "1.2.3",
            program,
            licences: &licences,
        };
        image.archive().unwrap().0
    }

    fn files(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            io::Read::read_to_end(&mut entry, &mut content).unwrap();
            (
                entry.path().unwrap().to_string_lossy().into_owned(),
                content,
            )
        });
        entries.collect()
    }

    #[test]
    fn every_part_is_called_by_its_hash_from_the_index_on() {
        let archive = files(&image(b"program"));
        let content = |name: &str| -> Vec<u8> {
            let found = archive.iter().find(|(found, _)| found == name);
            found.unwrap_or_else(|| panic!("no {name}")).1.clone()
        };
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"]
                .as_str()
                .unwrap()
                .replace("sha256:", "");
            let bytes = content(&format!("blobs/sha256/{digest}"));
            assert_eq!(descriptor["size"], bytes.len());
            let media = "";
            assert_eq!(
                Blob {
                    media,
                    bytes: bytes.clone()
                }
                .digest(),
                digest
            );
            bytes
        };
        let json = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap();
        let manifest = json(blob(&json(content("index.json"))["manifests"][0]));
        let config = json(blob(&manifest["config"]));
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            manifest["layers"][0]["digest"]
        );
        let layer = files(&blob(&manifest["layers"][0]));
        let names: Vec<_> = layer.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "usr/",
            "usr/bin/",
            PROGRAM,
            "usr/share/",
            "usr/share/doc/",
            "usr/share/doc/underpass/",
            "usr/share/doc/underpass/LICENSE",
        ];
        assert_eq!(names, expected);
        assert_eq!(layer[2].1, b"program");
    }

    #[test]
    fn the_same_binary_makes_the_same_image_and_another_one_another() {
        assert_eq!(image(b"a"), image(b"a"));
        assert_ne!(image(b"a"), image(b"b"));
    }
}
