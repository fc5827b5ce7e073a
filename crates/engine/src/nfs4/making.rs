//! CREATE (RFC 8881 §18.4): everything but ordinary files.

use steadfast_vfs::{DeviceNumber, NodeKind, SetAttr};
use steadfast_wire::nfs4::{Create4Args, CreateType4, NfsStat4, Op4};
use steadfast_xdr::{Encode, Writer};

use super::fattr_decode::ToSet;
use super::status::OrStatus;
use super::{changing, fattr_decode, idmap, names, setting};
use crate::compound::{Op, Run};
use crate::progress::Object;
use crate::reply::ReplyBuffer;

pub(super) struct Create;

impl Op for Create {
    const NUMBER: Op4 = Op4::Create;
    const NAME: &'static str = "CREATE";
    const RESULT_BYTES_MAX: usize = 48;
    type Arguments<'a> = Create4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Create4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        if let CreateType4::Other(_) = arguments.objtype {
            return Err(NfsStat4::BadType);
        }
        let name = names::name(arguments.objname)?;
        let ToSet { attributes: set, acl } =
            idmap::to_set(run, &arguments.createattrs, fattr_decode::decode_new)?;
        // Only ordinary files have a size of their own.
        if set.size.is_some_and(|size| size != 0) {
            return Err(NfsStat4::Inval);
        }
        let mut set = SetAttr { size: None, ..set };
        let before = run.made_before();
        let (_, dir) = changing::stored(run)?;
        let lists = match (&acl, arguments.objtype) {
            (None, _) => None,
            (Some(_), CreateType4::Link(_)) => return Err(NfsStat4::Inval),
            (Some(entries), kind) => {
                let is_directory = matches!(kind, CreateType4::Directory);
                let lists = setting::meant_of_new(dir, entries, &set, is_directory)?;
                set = setting::without_permissions(&set);
                Some(lists)
            }
        };
        if let Some(handle) = before {
            let (share, wcc) = (dir.share.id, changing::as_it_is(dir));
            run.set_current(Object::Stored(share, handle));
            if let Some(lists) = &lists {
                setting::set_acls(run, lists)?;
            }
            let mut w = Writer::new(&mut reply.bytes);
            changing::change_info(&mut w, &wcc);
            arguments.createattrs.attrmask.encode(&mut w);
            return Ok(());
        }
        let (storage, caller) = (dir.storage, dir.caller());
        let node = |kind| storage.make_node(&caller, &dir.handle, name, kind, &set);
        let device = |major, minor| DeviceNumber { major, minor };
        let durable = match arguments.objtype {
            CreateType4::Link(target) => {
                if target.is_empty() || target.contains(&0) {
                    return Err(NfsStat4::Inval);
                }
                storage.make_symlink(&caller, &dir.handle, name, target, &set)
            }
            CreateType4::BlockDevice(major, minor) => {
                node(NodeKind::BlockDevice(device(major, minor)))
            }
            CreateType4::CharacterDevice(major, minor) => {
                node(NodeKind::CharacterDevice(device(major, minor)))
            }
            CreateType4::Socket => node(NodeKind::Socket),
            CreateType4::Fifo => node(NodeKind::Fifo),
            CreateType4::Directory => storage.make_directory(&caller, &dir.handle, name, &set),
            CreateType4::Other(_) => return Err(NfsStat4::BadType),
        };
        let mut made = None;
        let promised = durable.map(|changed| made = Some((changed.result, changed.wcc)));
        let share = dir.share.id;
        run.promise(promised);
        let (result, wcc) = made.ok_or(NfsStat4::ServerFault)?;
        let entry = result.or_status()?;
        run.set_current(Object::Stored(share, entry.handle));
        if let Some(lists) = &lists {
            setting::set_acls(run, lists)?;
        }
        let mut w = Writer::new(&mut reply.bytes);
        changing::change_info(&mut w, &wcc);
        arguments.createattrs.attrmask.encode(&mut w);
        Ok(())
    }
}
