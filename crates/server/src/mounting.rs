//! How each kind of client mounts a share: a line for a shell, or what stands in a file.
//!
//! A form that a client's own syntax cannot say for this share is left out with the reason, rather than given wrong.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use steadfast_control::api::{MountForm, MountKind, Mounting, MountingRequest};
use steadfast_control::plain;
use steadfast_shares::Share;

use crate::mount_lines::{
    MountBy, NFS_PORT, PortLookup, host, linux_line, nfs3_options, nfs4_options, quoted,
};

/// Where clients mount it if nobody says so.
const AT: &str = "/mnt";
/// The longest name of an object of Kubernetes that all kinds of objects take.
const LABEL_MAX: usize = 63;
/// The size of a volume of Kubernetes whose share has none. It asks for a number, and does nothing with it.
const UNSIZED: &str = "1Gi";

/// A share as its clients see it.
struct Seen<'s> {
    share: &'s Share,
    by: &'s MountBy,
    /// As it stands before the colon of a device.
    host: String,
    /// If the server is named by an address.
    address: Option<IpAddr>,
    /// Whether it is reached by IPv6 alone.
    ipv6: bool,
    port: u16,
    /// The directory of the client, if somebody says so.
    at: Option<String>,
}

/// All forms of a share.
///
/// # Errors
/// When no client could name the server or the directory like that, in words for whoever asked.
pub(crate) fn mounting(
    share: &Share,
    by: &MountBy,
    request: &MountingRequest,
) -> Result<Mounting, String> {
    let addresses = by.addresses(share);
    let first = addresses.first();
    let (host, address) = match (request.server.as_deref(), first) {
        (Some(name), _) => named(name)?,
        (None, Some(first)) => (host(first.ip()), Some(first.ip())),
        (None, None) => {
            return Err("this machine has no address that a client could use: name it".to_owned());
        }
    };
    let meant = addresses.iter().find(|known| address == Some(known.ip())).or(first);
    let port = meant.or(by.listen.first()).map_or(NFS_PORT, SocketAddr::port);
    let ipv6 = address.map_or_else(
        || !by.listen.is_empty() && by.listen.iter().all(SocketAddr::is_ipv6),
        |address| address.is_ipv6(),
    );
    let at = request.at.as_deref().map(directory).transpose()?;
    let seen = Seen { share, by, host, address, ipv6, port, at };
    let form = |kind| match seen.form(kind) {
        Ok(text) => MountForm { kind, text, why_not: None },
        Err(why_not) => MountForm { kind, text: String::new(), why_not: Some(why_not.to_owned()) },
    };
    Ok(Mounting { path: share.path.to_string(), forms: MountKind::ALL.map(form).into() })
}

/// A directory of a client, without what is not needed of it.
fn directory(at: &str) -> Result<String, String> {
    let refused = |what: &str| Err(format!("{at:?} is no directory of a client: {what}"));
    if !at.starts_with('/') {
        return refused("it must begin with /");
    }
    if at.contains(plain::is_command) {
        return refused("it has control characters");
    }
    let parts: Vec<&str> = at.split('/').filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return refused("it has . or .. in it");
    }
    Ok(format!("/{}", parts.join("/")))
}

/// The server as somebody names it: as it stands before a colon, and its address if it is one.
fn named(name: &str) -> Result<(String, Option<IpAddr>), String> {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok((host(address), Some(address)));
    }
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || name.starts_with('-') || !name.chars().all(is_of_a_name) {
        return Err(format!("{name:?} is neither the name of a host nor an address"));
    }
    Ok((name.to_owned(), None))
}

/// A text, or why there is none.
type Form = Result<String, &'static str>;

impl Seen<'_> {
    fn form(&self, kind: MountKind) -> Form {
        match kind {
            MountKind::Linux => Ok(linux_line(&self.options(), &self.device(), self.at())),
            MountKind::Fstab => self.fstab(),
            MountKind::Systemd => self.systemd(),
            MountKind::Autofs => self.autofs(),
            MountKind::Steadfast => Ok(self.steadfast()),
            MountKind::Macos => self.macos(),
            MountKind::Windows => self.windows(),
            MountKind::Kubernetes => self.kubernetes(),
        }
    }

    fn at(&self) -> &str {
        self.at.as_deref().unwrap_or(AT)
    }

    fn device(&self) -> String {
        format!("{}:{}", self.host, self.share.path)
    }

    /// Of a client of Linux.
    fn options(&self) -> Vec<String> {
        if self.by.nfs4 {
            return nfs4_options(self.port);
        }
        nfs3_options(self.port, self.ipv6, self.by.lookup, self.by.udp)
    }

    fn fstab(&self) -> Form {
        // Others read fstab(5), too, as systemd at each start, and know no more escapes than it says.
        if self.share.path.contains(|c: char| plain::is_command(c) && !"\t\n".contains(c)) {
            return Err("fstab(5) cannot have this path: it has control characters");
        }
        // A machine starts without the server, too.
        let mut options = vec!["_netdev".to_owned(), "nofail".to_owned()];
        options.extend(self.options());
        let (device, at) = (fstab_word(&self.device()), fstab_word(self.at()));
        Ok(format!("{device}  {at}  nfs  {}  0  0", options.join(",")))
    }

    fn systemd(&self) -> Form {
        if self.share.path.contains(plain::is_command) {
            return Err("a unit of systemd cannot have this path: it has control characters");
        }
        // The end of a line means something there.
        if [&*self.share.path, self.at()].iter().any(|path| path.ends_with(['\\', ' '])) {
            return Err("a unit of systemd cannot have a path that ends in a blank or a backslash");
        }
        let device = self.device().replace('%', "%%");
        let at = self.at().replace('%', "%%");
        let unit = unit_name(self.at());
        let options = match self.options() {
            options if options.is_empty() => String::new(),
            options => format!("Options={}\n", options.join(",")),
        };
        Ok(format!(
            "# /etc/systemd/system/{unit}\n\
             # systemctl daemon-reload; systemctl enable --now {}\n\
             [Unit]\n\
             Description={device}\n\
             \n\
             [Mount]\n\
             What={device}\n\
             Where={at}\n\
             Type=nfs\n\
             {options}\
             \n\
             [Install]\n\
             WantedBy=remote-fs.target",
            quoted(&unit)
        ))
    }

    fn autofs(&self) -> Form {
        let is_plain = |c: char| c.is_alphanumeric() || " /._-+,=@%~".contains(c);
        let words = [&*self.share.path, self.at()];
        if !words.iter().all(|word| word.chars().all(is_plain)) {
            return Err(
                "a map of autofs cannot have this path: characters of it have a meaning there",
            );
        }
        let word = |word: String| if word.contains(' ') { format!("\"{word}\"") } else { word };
        let mut options =
            vec![if self.by.nfs4 { "-fstype=nfs4" } else { "-fstype=nfs" }.to_owned()];
        options.extend(self.options());
        Ok(format!(
            "# /etc/auto.master.d/steadfast.autofs\n\
             /-  /etc/auto.steadfast\n\
             # /etc/auto.steadfast\n\
             {}  {}  {}",
            word(self.at().to_owned()),
            options.join(","),
            word(self.device())
        ))
    }

    fn steadfast(&self) -> String {
        let options = match self.by.lookup {
            PortLookup::Rpcbind => String::new(),
            PortLookup::Told => format!("-o port={0},mountport={0} ", self.port),
        };
        format!("mount -t steadfast {options}{} {}", quoted(&self.device()), quoted(self.at()))
    }

    /// Apple's client takes NFSv3 unless it is told otherwise.
    fn macos(&self) -> Form {
        if self.share.path.contains([',', ':']) {
            return Err("macOS cannot say this path: commas and colons separate places there");
        }
        let port = self.port;
        let options = match (self.by.lookup, self.by.nfs4) {
            (PortLookup::Rpcbind, _) => "vers=3".to_owned(),
            (PortLookup::Told, true) if port == NFS_PORT => "vers=4".to_owned(),
            (PortLookup::Told, true) => format!("vers=4,port={port}"),
            (PortLookup::Told, false) => format!("vers=3,tcp,nolocks,port={port},mountport={port}"),
        };
        let last = self.share.path.rsplit('/').next().filter(|name| !name.is_empty());
        let at = match (self.at.as_deref(), last) {
            (Some(at), _) => quoted(at),
            (None, Some(name)) => format!("~/{}", quoted(name)),
            (None, None) => "~/share".to_owned(),
        };
        let device = quoted(&self.device());
        Ok(format!("mkdir -p {at}\nsudo mount -t nfs -o {options},resvport,hard {device} {at}"))
    }

    fn windows(&self) -> Form {
        if self.by.lookup == PortLookup::Told {
            return Err("Windows asks port 111 where NFSv3 is, and is not told there");
        }
        if self.address.is_some_and(|address| address.is_ipv6()) {
            return Err("Windows does not take an IPv6 address here: name the server");
        }
        // Whatever cmd.exe or PowerShell may read in another character.
        if !self.share.path.chars().all(|c| c.is_alphanumeric() || "/._-+~ ".contains(c)) {
            return Err("Windows cannot say this path: characters of it have a meaning there");
        }
        if &*self.share.path == "/" {
            return Err("Windows has no name for /");
        }
        // In PowerShell `mount` alone is something else.
        let place = format!(r"\\{}{}", self.host, self.share.path.replace('/', r"\"));
        Ok(format!("mount.exe -o mtype=hard \"{place}\" Z:"))
    }

    fn kubernetes(&self) -> Form {
        if self.share.path.contains(plain::is_command) {
            return Err("a manifest is not written for this path: it has control characters");
        }
        let name = label(self.share);
        let yaml = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let mut options = vec!["hard".to_owned()];
        if self.by.nfs4 {
            options.push("nfsvers=4.2".to_owned());
        }
        options.extend(self.options());
        // An address stands without its brackets there.
        let server = self.address.map_or_else(|| self.host.clone(), |address| address.to_string());
        let size = match self.share.size {
            // Units of 1024 are `Gi` and the like there.
            Some(size) => {
                let size = size.to_string();
                if size.ends_with(char::is_alphabetic) { size + "i" } else { size }
            }
            None => UNSIZED.to_owned(),
        };
        Ok(format!(
            "apiVersion: v1\n\
             kind: PersistentVolume\n\
             metadata:\n  name: {name}\n\
             spec:\n  capacity:\n    storage: {size}\n  accessModes: [ReadWriteMany]\n  \
             persistentVolumeReclaimPolicy: Retain\n  storageClassName: \"\"\n  mountOptions: [{}]\n  \
             nfs:\n    server: {}\n    path: {}\n\
             ---\n\
             apiVersion: v1\n\
             kind: PersistentVolumeClaim\n\
             metadata:\n  name: {name}\n\
             spec:\n  accessModes: [ReadWriteMany]\n  storageClassName: \"\"\n  volumeName: {name}\n  \
             resources:\n    requests:\n      storage: {size}",
            options.join(", "),
            yaml(&server),
            yaml(&self.share.path),
        ))
    }
}

/// A word as fstab(5) has it, which libmount, glibc and systemd read so.
fn fstab_word(word: &str) -> String {
    let mut written = String::new();
    for c in word.chars() {
        match c {
            ' ' => written.push_str("\\040"),
            '\t' => written.push_str("\\011"),
            '\n' => written.push_str("\\012"),
            '\\' => written.push_str("\\134"),
            c => written.push(c),
        }
    }
    written
}

/// The name of the mount unit of a directory, as `systemd-escape --path --suffix=mount` makes it.
fn unit_name(directory: &str) -> String {
    let parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    let joined = parts.join("/");
    let mut name = String::new();
    for (place, byte) in joined.bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if place == 0 => name.push_str("\\x2e"),
            b if b.is_ascii_alphanumeric() || b":_.".contains(&b) => name.push(char::from(b)),
            b => drop(write!(name, "\\x{b:02x}")),
        }
    }
    if name.is_empty() {
        name.push('-');
    }
    name + ".mount"
}

/// The path as a name of Kubernetes: small letters, digits and `-`. Of one that had to be changed for that, some
/// digits of the share's number tell it from others.
fn label(share: &Share) -> String {
    let small = share.path.to_ascii_lowercase();
    let words: Vec<&str> =
        small.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let label = words.join("-");
    let is_all = format!("/{}", words.join("/")) == *share.path;
    if is_all && !label.is_empty() && label.len() <= LABEL_MAX {
        return label;
    }
    let number = format!("{:08x}", share.id.0 & 0xffff_ffff);
    // Of ASCII letters alone, so that any place in it is one between characters.
    let kept = label.get(..LABEL_MAX - 1 - number.len()).unwrap_or(&label).trim_end_matches('-');
    if kept.is_empty() { format!("share-{number}") } else { format!("{kept}-{number}") }
}

#[cfg(test)]
mod tests {
    use steadfast_shares::Size;

    use super::*;
    use crate::mount_lines::tests::share;

    fn by(listen: &str, lookup: PortLookup, nfs4: bool) -> MountBy {
        MountBy { listen: vec![listen.parse().expect("an address")], lookup, udp: true, nfs4 }
    }

    fn usual() -> MountBy {
        by("10.0.0.1:2049", PortLookup::Rpcbind, true)
    }

    fn form(share: &Share, by: &MountBy, at: Option<&str>, kind: MountKind) -> MountForm {
        let request = MountingRequest { at: at.map(str::to_owned), ..MountingRequest::default() };
        let forms = mounting(share, by, &request).expect("forms").forms;
        forms.into_iter().find(|form| form.kind == kind).expect("one of each kind")
    }

    fn text(path: &str, by: &MountBy, at: Option<&str>, kind: MountKind) -> String {
        let form = form(&share(path), by, at, kind);
        assert_eq!(form.why_not, None, "{path}");
        form.text
    }

    #[test]
    fn most_need_no_options() {
        let text = |kind| text("/srv/data", &usual(), None, kind);
        assert_eq!(text(MountKind::Linux), "mount -t nfs 10.0.0.1:/srv/data /mnt");
        assert_eq!(text(MountKind::Fstab), "10.0.0.1:/srv/data  /mnt  nfs  _netdev,nofail  0  0");
        assert_eq!(text(MountKind::Steadfast), "mount -t steadfast 10.0.0.1:/srv/data /mnt");
        assert_eq!(text(MountKind::Windows), r#"mount.exe -o mtype=hard "\\10.0.0.1\srv\data" Z:"#);
        assert_eq!(
            text(MountKind::Macos),
            "mkdir -p ~/data\nsudo mount -t nfs -o vers=3,resvport,hard 10.0.0.1:/srv/data ~/data"
        );
        assert!(text(MountKind::Autofs).ends_with("\n/mnt  -fstype=nfs4  10.0.0.1:/srv/data"));
        let unit = text(MountKind::Systemd);
        assert!(unit.starts_with("# /etc/systemd/system/mnt.mount\n"), "{unit}");
        assert!(!unit.contains("Options="), "{unit}");
    }

    #[test]
    fn ports_are_told_where_nobody_can_ask_for_them() {
        let by = by("[fd00::1]:12049", PortLookup::Told, false);
        let told = "vers=3,nolock,port=12049,mountport=12049,proto=tcp6,mountproto=tcp6";
        let text = |kind| text("/srv", &by, None, kind);
        assert_eq!(text(MountKind::Linux), format!("mount -t nfs -o {told} '[fd00::1]:/srv' /mnt"));
        assert_eq!(
            text(MountKind::Fstab),
            format!("[fd00::1]:/srv  /mnt  nfs  _netdev,nofail,{told}  0  0")
        );
        assert!(text(MountKind::Systemd).contains(&format!("\nOptions={told}\n")));
        assert!(
            text(MountKind::Autofs).ends_with(&format!("/mnt  -fstype=nfs,{told}  [fd00::1]:/srv"))
        );
        let volume = text(MountKind::Kubernetes);
        assert!(volume.contains("    server: 'fd00::1'\n"), "{volume}");
        assert!(volume.contains(&told.replace(',', ", ")), "{volume}");
        assert!(form(&share("/srv"), &by, None, MountKind::Windows).why_not.is_some());
    }

    #[test]
    fn names_are_written_as_each_reads_them() {
        let text = |kind| text("/it's 50%", &usual(), Some("/mnt/a b-c"), kind);
        assert_eq!(
            text(MountKind::Fstab),
            r"10.0.0.1:/it's\04050%  /mnt/a\040b-c  nfs  _netdev,nofail  0  0"
        );
        let unit = text(MountKind::Systemd);
        assert!(unit.starts_with(r"# /etc/systemd/system/mnt-a\x20b\x2dc.mount"), "{unit}");
        assert!(unit.contains("\nWhat=10.0.0.1:/it's 50%%\n"), "{unit}");
        assert!(text(MountKind::Kubernetes).contains("path: '/it''s 50%'\n"));
        assert!(form(&share("/it's"), &usual(), None, MountKind::Autofs).why_not.is_some());
        let fstab = form(&share("/a#\t\\"), &usual(), None, MountKind::Fstab).text;
        assert_eq!(fstab, r"10.0.0.1:/a#\011\134  /mnt  nfs  _netdev,nofail  0  0");
        for (path, kind) in [
            ("/a\u{9b}", MountKind::Fstab),
            ("/a\\", MountKind::Systemd),
            ("/a ", MountKind::Systemd),
            ("/a,b:c", MountKind::Macos),
            ("/", MountKind::Windows),
        ] {
            assert!(form(&share(path), &usual(), None, kind).why_not.is_some(), "{path}");
        }
        for c in "\\:*?\"<>|%&^$`!;'(){}[],=@#".chars() {
            let form = form(&share(&format!("/a{c}b")), &usual(), None, MountKind::Windows);
            assert!(form.why_not.is_some(), "{c}");
        }
        for kind in
            [MountKind::Systemd, MountKind::Autofs, MountKind::Windows, MountKind::Kubernetes]
        {
            let form = form(&share("/two\nlines"), &usual(), None, kind);
            assert!(form.text.is_empty() && form.why_not.is_some(), "{form:?}");
        }
    }

    /// As `systemd-escape --path --suffix=mount` of systemd 252 says.
    #[test]
    fn units_have_the_names_that_systemd_gives_them() {
        let known = [
            ("/", "-.mount"),
            ("/mnt", "mnt.mount"),
            ("//a//b/", "a-b.mount"),
            ("/.a/.b", r"\x2ea-.b.mount"),
            ("/a-b_c:d", r"a\x2db_c:d.mount"),
            ("/é", r"\xc3\xa9.mount"),
        ];
        for (directory, unit) in known {
            assert_eq!(unit_name(directory), unit);
        }
    }

    #[test]
    fn volumes_have_the_size_of_the_share() {
        let mut sized = share("/Pool/My_Project!");
        sized.size = Size::of_bytes(10 << 30);
        let volume = form(&sized, &usual(), None, MountKind::Kubernetes).text;
        assert!(volume.contains("name: pool-my-project-00000001\n"), "{volume}");
        assert_eq!(volume.matches("storage: 10Gi").count(), 2, "{volume}");
        assert_eq!(label(&share("/srv/a/b")), "srv-a-b");
        assert_eq!(label(&share("/srv/a-b")), "srv-a-b-00000001");
        assert_eq!(label(&share("/")), "share-00000001");
        assert!(label(&share(&"/ab".repeat(40))).len() <= LABEL_MAX);
    }

    #[test]
    fn what_no_client_could_type_is_refused() {
        let ask = |server: Option<&str>, at: Option<&str>| {
            let request = MountingRequest {
                path: "/srv".to_owned(),
                server: server.map(str::to_owned),
                at: at.map(str::to_owned),
            };
            mounting(&share("/srv"), &usual(), &request)
        };
        for server in ["", "-a", "a b", "a:b", "a/b", "é", "10.0.0.1:1"] {
            assert!(ask(Some(server), None).is_err(), "{server:?}");
        }
        for at in ["", "mnt", "/a\nb", "/a/../b", "/./a"] {
            assert!(ask(None, Some(at)).is_err(), "{at:?}");
        }
        let forms = ask(Some("[fd00::1]"), Some("/a")).expect("forms").forms;
        assert_eq!(forms[0].text, "mount -t nfs '[fd00::1]:/srv' /a");
        let forms = ask(None, Some("//a//b/")).expect("forms").forms;
        assert_eq!(forms[0].text, "mount -t nfs 10.0.0.1:/srv /a/b");
        let forms = ask(Some("nas.example"), None).expect("forms").forms;
        assert_eq!(forms[0].text, "mount -t nfs nas.example:/srv /mnt");
        let two =
            ["10.0.0.1:2049", "[fd00::1]:12049"].map(|text| text.parse().expect("an address"));
        let two = MountBy { listen: two.into(), ..usual() };
        let request =
            MountingRequest { server: Some("fd00::1".to_owned()), ..MountingRequest::default() };
        let forms = mounting(&share("/srv"), &two, &request).expect("forms").forms;
        assert_eq!(forms[0].text, "mount -t nfs -o port=12049 '[fd00::1]:/srv' /mnt");
        assert!(
            mounting(&share("/srv"), &MountBy::nowhere(), &MountingRequest::default()).is_err()
        );
    }
}
