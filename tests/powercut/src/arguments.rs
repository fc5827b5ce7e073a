//! The command line.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::check::Broken;
use crate::histories::Parts;
use crate::server::Kind;
use crate::storage::FileSystem;

const USAGE: &str = "options:
  --fs ext4|xfs|btrfs|all  the file systems to serve from (all)
  --points N               crash points for each file system (200)
  --points-of-a-run N      how many of them one recorded run gives (250)
  --seed N                 of the first run; the next has the next number (1)
  --point N                only this point of the first run
  --operations N           operations of a run (1500)
  --nfs VERSION            3, or 4.1: beside the clients of NFSv3 those of 4.1 hold files open and
                           locked (3)
  --clients N              how many change the share; every second one pipelines (4)
  --server NAME            steadfast or ganesha (steadfast)
  --kills N                kill -9 under load so many times, instead of power cuts
  --expect-loss            finding a broken promise is success, finding none a failure
  --expect BROKEN,...      the run ends when one of these is found, and fails if none is: names,
                           handles, data, attributes, replies, halves, starts, reverted, access,
                           reclaims, strangers
  --histories              lives of the server one after the other, with local processes, ACLs, calls
                           sent again, second crashes, and older disks put back; with --kills, too
  --with PART,...          only these parts of them: local, gap, identity, restored, double, resent,
  --without PART,...       acls; or all but these
  --allow-halves           what was not acknowledged may be there by halves
  --replies                calls sent again after the crash get the same bytes
  --configuration FILE     added to steadfast's; {state} and {log} stand for directories
  --log-mib N              a recorded disk of its own for the log
  --log-fs NAME            ext4 or ext4-without-journal, of that disk (ext4)
  --program FILE           steadfast
  --keep DIR               keep crash states that break a promise
  --json FILE              write the result there too";

/// Clients of NFSv4.1 at one time, where there are any.
const HOLDERS: usize = 2;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    pub(crate) file_systems: Vec<FileSystem>,
    pub(crate) points: usize,
    pub(crate) points_of_a_run: usize,
    pub(crate) seed: u64,
    pub(crate) point: Option<usize>,
    pub(crate) operations: usize,
    pub(crate) clients: usize,
    /// Clients of NFSv4.1 beside them.
    pub(crate) holders: usize,
    pub(crate) server: Kind,
    pub(crate) kills: Option<usize>,
    pub(crate) expects_loss: bool,
    pub(crate) expected: Vec<Broken>,
    pub(crate) allows_halves: bool,
    pub(crate) is_replayed: bool,
    pub(crate) configuration: Option<PathBuf>,
    pub(crate) log_bytes: Option<u64>,
    pub(crate) log_file_system: FileSystem,
    pub(crate) program: PathBuf,
    pub(crate) keep: Option<PathBuf>,
    pub(crate) json: Option<PathBuf>,
    /// Histories of these parts.
    pub(crate) histories: Option<Parts>,
}

impl Arguments {
    /// Takes the command line apart.
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let mut arguments = Self {
            file_systems: FileSystem::ALL.to_vec(),
            points: 200,
            points_of_a_run: 250,
            seed: 1,
            point: None,
            operations: 1500,
            clients: 4,
            holders: 0,
            server: Kind::Steadfast,
            kills: None,
            expects_loss: false,
            expected: Vec::new(),
            allows_halves: false,
            is_replayed: false,
            configuration: None,
            log_bytes: None,
            log_file_system: FileSystem::Ext4,
            program: "steadfast".into(),
            keep: None,
            json: None,
            histories: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            let number = |text: &String| -> Result<usize> {
                text.parse().with_context(|| format!("{word} takes a number, not {text:?}"))
            };
            match word.as_str() {
                "--fs" => {
                    let name = value()?;
                    if name != "all" {
                        arguments.file_systems = vec![name.parse()?];
                    }
                }
                "--points" => arguments.points = number(value()?)?,
                "--points-of-a-run" => arguments.points_of_a_run = number(value()?)?.max(1),
                "--seed" => arguments.seed = number(value()?)? as u64,
                "--point" => arguments.point = Some(number(value()?)?),
                "--operations" => arguments.operations = number(value()?)?,
                "--clients" => arguments.clients = number(value()?)?.max(1),
                "--nfs" => {
                    arguments.holders = match value()?.as_str() {
                        "3" => 0,
                        "4.1" => HOLDERS,
                        other => bail!("--nfs takes 3 or 4.1, not {other:?}"),
                    };
                }
                "--server" => arguments.server = value()?.parse()?,
                "--kills" => arguments.kills = Some(number(value()?)?),
                "--expect-loss" => arguments.expects_loss = true,
                "--expect" => {
                    let broken = value()?.split(',').map(str::parse);
                    arguments.expected = broken.collect::<Result<_>>()?;
                }
                "--histories" => {
                    arguments.histories.get_or_insert(Parts::ALL);
                }
                "--with" => arguments.histories = Some(Parts::parse(value()?, true)?),
                "--without" => arguments.histories = Some(Parts::parse(value()?, false)?),
                "--allow-halves" => arguments.allows_halves = true,
                "--replies" => arguments.is_replayed = true,
                "--configuration" => arguments.configuration = Some(value()?.into()),
                "--log-mib" => arguments.log_bytes = Some((number(value()?)? as u64) << 20),
                "--log-fs" => {
                    arguments.log_file_system = match value()?.as_str() {
                        "ext4" => FileSystem::Ext4,
                        "ext4-without-journal" => FileSystem::Ext4WithoutJournal,
                        other => {
                            bail!("--log-fs takes ext4 or ext4-without-journal, not {other:?}")
                        }
                    };
                }
                "--program" => arguments.program = value()?.into(),
                "--keep" => arguments.keep = Some(value()?.into()),
                "--json" => arguments.json = Some(value()?.into()),
                _ => bail!("unknown option {word:?}\n{USAGE}"),
            }
        }
        let is_plain = arguments.histories.is_none() && arguments.server == Kind::Steadfast;
        if arguments.holders > 0 && !is_plain {
            bail!("--nfs 4.1 goes with steadfast, and without --histories");
        }
        Ok(arguments)
    }
}
