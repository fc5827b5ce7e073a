//! The records of hosts that speak NLM. They stand among those of clients, so that whoever ends a
//! client ends a host by the same way; but no name of an owner finds them.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Record, Registry};
use crate::client::Kind;
use crate::client::host_data::HostData;
use crate::{Client, ClientId, Principal, StateError};

/// Hosts that there are at most. `server/src/nsm.rs` records twice as many, and can tell so many of a
/// restart before a grace period is over.
const HOSTS_MAX: usize = 4_096;
/// Hosts that there are at most of one address: they give themselves their names.
const HOSTS_OF_ADDRESS_MAX: usize = 64;

impl Registry {
    /// Hosts that there are at most.
    pub(super) fn hosts_max(&self) -> usize {
        self.confirmed_max.min(HOSTS_MAX)
    }

    /// Finds a host.
    pub(crate) fn known_host(
        &self,
        now_ms: u64,
        name: &[u8],
        address: IpAddr,
    ) -> Option<Arc<Client>> {
        let index = self.hosts.get(&(address, Arc::from(name)))?;
        let client = &self.at(*index)?.client;
        client.renew(now_ms);
        Some(Arc::clone(client))
    }

    /// Finds a host or makes its record. Of too many hosts, or too many of one address, the one
    /// that was not heard for longest and has nothing leaves.
    pub(crate) fn host(
        &mut self,
        now_ms: u64,
        name: &[u8],
        address: IpAddr,
        left: &mut Vec<Record>,
    ) -> Result<Arc<Client>, StateError> {
        let key = (address, Arc::<[u8]>::from(name));
        if let Some(record) = self.hosts.get(&key).and_then(|index| self.at(*index)) {
            record.client.renew(now_ms);
            return Ok(Arc::clone(&record.client));
        }
        let is_crowded = self.hosts_of(address).count() >= HOSTS_OF_ADDRESS_MAX;
        if is_crowded || self.hosts.len() >= self.hosts_max() {
            let among = is_crowded.then_some(address);
            let leaving = self.longest_idle_host(among).and_then(|id| self.remove(id));
            left.push(leaving.ok_or(StateError::TryLater)?);
        }
        let index = self.free_place().ok_or(StateError::TryLater)?;
        let place = self.places.get_mut(usize::from(index)).ok_or(StateError::TryLater)?;
        place.generation = place.generation.wrapping_add(1);
        let id = ClientId::new(self.instance, place.generation, index);
        let data = HostData::new(key.1, address, 0);
        let client = self.put_host(now_ms, id, data).ok_or(StateError::TryLater)?;
        if let Some(data) = client.host() {
            data.note(&client);
        }
        Ok(client)
    }

    /// Makes the record of a host again; `None` if another one has its place or name.
    pub(crate) fn restore_host(
        &mut self,
        now_ms: u64,
        id: ClientId,
        (name, address, state): (Arc<[u8]>, IpAddr, u32),
    ) -> Option<Arc<Client>> {
        let place = self.places.get(usize::from(id.index()))?;
        if place.record.is_some() || self.hosts.contains_key(&(address, Arc::clone(&name))) {
            return None;
        }
        self.put_host(now_ms, id, HostData::new(name, address, state))
    }

    fn put_host(&mut self, now_ms: u64, id: ClientId, data: HostData) -> Option<Arc<Client>> {
        let (name, address) = (Arc::clone(data.name()), data.address());
        let kind = Kind::Host(Arc::new(data));
        let clock_ms = Arc::clone(&self.clock_ms);
        let client = Arc::new(Client::new(id, kind, now_ms, clock_ms, Arc::clone(&self.journal)));
        let place = self.places.get_mut(usize::from(id.index()))?;
        place.record = Some(Record {
            client: Arc::clone(&client),
            owner: Arc::clone(&name),
            verifier: [0; 8],
            principal: Principal(Box::default()),
            implementation: Box::default(),
            address,
            unconfirmed: None,
            sequence: 0,
            created: None,
            sessions: Vec::new(),
            set: None,
        });
        self.hosts.insert((address, name), id.index());
        Some(client)
    }

    /// All hosts.
    pub(crate) fn all_hosts(&self) -> impl Iterator<Item = &Arc<Client>> {
        self.records().map(|record| &record.client).filter(|client| client.host().is_some())
    }

    /// The hosts of an address.
    fn hosts_of(&self, address: IpAddr) -> impl Iterator<Item = &Arc<Client>> {
        let first = (address, Arc::from(&[][..]));
        let its = self.hosts.range(first..).take_while(move |((of, _), _)| *of == address);
        its.filter_map(|(_, index)| self.at(*index)).map(|record| &record.client)
    }

    /// Of all hosts, or of those of an address.
    fn longest_idle_host(&self, address: Option<IpAddr>) -> Option<ClientId> {
        let all = address.is_none().then(|| self.all_hosts()).into_iter().flatten();
        let its = address.map(|address| self.hosts_of(address)).into_iter().flatten();
        all.chain(its)
            .filter(|client| client.opens.lock().count() == 0)
            .min_by_key(|client| client.renewed_ms())
            .map(|client| client.id())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::Settings;
    use crate::image::Journal;

    #[test]
    fn more_clients_do_not_mean_more_hosts() {
        for (clients_max, hosts_max) in [(16_384, 4_096), (28_000, 4_096), (100, 100)] {
            let mut settings = Settings::new(1);
            settings.limits.clients_max = clients_max;
            let clock_ms = Arc::new(AtomicU64::new(0));
            let registry = Registry::new(&settings, clock_ms, Arc::new(Journal::default()));
            assert_eq!(registry.hosts_max(), hosts_max);
        }
    }
}
