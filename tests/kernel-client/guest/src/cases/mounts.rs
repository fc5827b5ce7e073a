//! Mounting: with the port mapper, with every transfer size, with the options people use.

use std::os::unix::fs::FileExt;

use anyhow::{Context as _, Result};

use super::{expect_bytes, expect_equal};
use crate::context::Context;
use crate::mount::{Mount, of_version, run};

/// Mount options as people write them: the client finds MOUNT and NFS through rpcbind.
pub(crate) fn through_rpcbind(context: &Context) -> Result<()> {
    let device = format!("{}:{}", context.value("server")?, context.value("share.main")?);
    let mount = Mount::new(&device, "/run/nfs/mount-rpcbind/main".into(), &[of_version("3")?])?;
    let directory = context.fresh_directory(&mount)?;
    std::fs::write(directory.join("hello"), "hello")?;
    let exports = run("showmount", &["--no-headers", "--exports", context.value("server")?])
        .context("showmount -e")?;
    let share = context.value("share.main")?;
    anyhow::ensure!(exports.contains(share), "showmount -e lacks {share}: {exports}");
    Ok(())
}

/// rsize and wsize from 4 KiB to 1 MiB: in effect as asked, and every byte right.
pub(crate) fn sizes(context: &Context) -> Result<()> {
    let mut random = context.random();
    let sizes: &[usize] = context.by_version(
        &[4096, 65_536, 1_048_576],
        &[4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_048_576],
    );
    // Not a multiple of any transfer size.
    let content = random.bytes(3 * 1_048_576 + 4097);
    for &read_size in sizes {
        for &write_size in sizes {
            let what = format!("rsize={read_size},wsize={write_size}");
            let (mount, directory) = context.mount_main(&what)?;
            for (option, asked) in [("rsize", read_size), ("wsize", write_size)] {
                expect_equal(&mount.effective(option)?, &asked.to_string(), &what)?;
            }
            let path = directory.join("content");
            let file = std::fs::File::create(&path)?;
            file.write_all_at(&content, 0)?;
            // Rewrites that start and end inside a page and inside a transfer.
            let mut expected = content.clone();
            for _ in 0..8 {
                let patch = random.bytes(1 + random.clone().below(100_000) as usize);
                let at = random.below((content.len() - patch.len()) as u64) as usize;
                file.write_all_at(&patch, at as u64)?;
                expected[at..at + patch.len()].copy_from_slice(&patch);
            }
            file.sync_all()?;
            drop(file);
            mount.again()?;
            expect_bytes(&std::fs::read(&path)?, &expected, &what)?;
            // From the end to the start: no read-ahead.
            let file = std::fs::File::open(&path)?;
            mount.again().err().context("umount with an open file has to fail")?;
            let mut at = expected.len();
            while at > 0 {
                let length = at.min(100_001);
                at -= length;
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, at as u64)?;
                expect_bytes(&bytes, &expected[at..at + length], &what)?;
            }
        }
    }
    Ok(())
}

/// A file written and read back under each of the options that change what goes over the wire.
pub(crate) fn options(context: &Context) -> Result<()> {
    let all = [
        "soft,timeo=600",
        "sync",
        "noac",
        "actimeo=0",
        "nordirplus",
        "noacl",
        "sec=sys",
        "intr",
        "nocto",
        "lookupcache=none",
        "nosharecache",
        "retrans=5",
        "nconnect=4",
    ];
    let content = context.random().bytes(100_000);
    for option in all {
        let (mount, directory) = context.mount_main(option).with_context(|| option.to_owned())?;
        for number in 0..10 {
            std::fs::write(directory.join(format!("file-{number}")), &content)?;
        }
        mount.again()?;
        let names = std::fs::read_dir(&directory)?.count();
        expect_equal(&names, &10, option)?;
        for number in 0..10 {
            let found = std::fs::read(directory.join(format!("file-{number}")))?;
            expect_bytes(&found, &content, option)?;
        }
    }
    Ok(())
}

/// The lines that the server prints mount, as they are printed, whatever of rpcbind and UDP is served.
pub(crate) fn printed_lines(context: &Context) -> Result<()> {
    let mounted = ["", "--no-udp", "--no-rpcbind", "--no-rpcbind --no-udp"]
        .iter()
        .try_for_each(|how| mount_as_printed(context, how).with_context(|| format!("serve {how}")));
    context.host("serve-with")?;
    mounted
}

fn mount_as_printed(context: &Context, how: &str) -> Result<()> {
    let server = context.value("server")?;
    context.host(&format!("serve-with {how} --listen {server}:2049 --listen [fd77::1]:2049"))?;
    let control = std::path::Path::new(context.value("control")?);
    let lines = std::fs::read_to_string(control.join("mount-lines"))?;
    for address in [server, "[fd77::1]"] {
        let of_main = format!("{address}:{}", context.value("share.main")?);
        anyhow::ensure!(lines.contains(&of_main), "no line for {of_main}: {lines}");
    }
    for line in lines.lines() {
        // A client that asks a port where nobody listens would do so for minutes.
        run("timeout", &["20", "sh", "-c", line]).with_context(|| line.to_owned())?;
        let kind = run("stat", &["--file-system", "--format=%T", "/mnt"]);
        run("umount", &["/mnt"])?;
        expect_equal(&kind?.trim(), &"nfs", line)?;
    }
    mount_by_fstab(context, server, control)
}

/// The line for fstab mounts as well.
fn mount_by_fstab(context: &Context, server: &str, control: &std::path::Path) -> Result<()> {
    let share = context.value("share.main")?;
    for address in [server, "fd77::1"] {
        let told = format!("share mounting {share} --by fstab --server-name {address}");
        context.host(&format!("steadfast-into fstab {told}"))?;
        let fstab = control.join("fstab");
        let line = std::fs::read_to_string(&fstab)?;
        let fstab = fstab.to_str().context("a path")?;
        run("timeout", &["20", "mount", "-T", fstab, "/mnt"]).with_context(|| line.clone())?;
        let kind = run("stat", &["--file-system", "--format=%T", "/mnt"]);
        run("umount", &["/mnt"])?;
        expect_equal(&kind?.trim(), &"nfs", &line)?;
    }
    Ok(())
}
