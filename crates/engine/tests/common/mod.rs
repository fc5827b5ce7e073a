//! What several tests of the engine begin with.

use std::sync::Arc;

use steadfast_engine::{Engine, EngineConfig, Export, ExportTable, Transports};
use steadfast_shares::{ClientPattern, ClientRule, Rights, Share, ShareId, Squash};
use steadfast_vfs::model::ModelFs;

/// An engine with one share in memory, `/a`, that everybody may change as whoever he says he is.
pub(crate) fn engine() -> Engine {
    let rights = Rights { squash: Squash::None, ..Rights::default() };
    let rule = ClientRule { pattern: ClientPattern::Any, grants: Arc::new([rights]) };
    let share = Share {
        id: ShareId(1),
        path: "/a".into(),
        elsewhere: None,
        crosses_mounts: false,
        required_mounts: Arc::default(),
        size: None,
        without_log: false,
        is_draining: false,
        rules: Arc::new(vec![rule].into()),
    };
    let export = Export { share: Arc::new(share), storage: Arc::new(ModelFs::new(1, 0o777)) };
    let config = EngineConfig {
        instance: 1,
        nfs2: true,
        delegations: steadfast_engine::Delegations::None,
        local_guard: steadfast_engine::LocalGuard::None,
        idmapping: steadfast_engine::IdMapping::default(),
        nfs4: false,
        handle_key: [3; 16],
        write_verifier: 1,
        transfer_bytes_max: 1 << 20,
        reply_cache_bytes_max: 1 << 20,
        reply_cache_history_ms: 65_000,
        nfs_port: 2049,
        transports: Transports { udp: true, ipv4: true, ipv6: true },
    };
    Engine::new(config, ExportTable::new(vec![export]))
}
