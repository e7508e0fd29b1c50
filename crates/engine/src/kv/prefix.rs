//! The prefix cache: pages by the tokens that led to them.
//!
//! A radix tree whose nodes are pages (SGLang's RadixAttention, §3, by whole pages). A node stands
//! for the tokens of its page after those of its parents, and holds that page in every KV class that
//! still has it: classes with a sliding window lose theirs first. Inner nodes are full; a leaf may
//! hold fewer tokens, the end of a sequence. A prompt's beginning is found to the token: of a page
//! that agrees in part, the part is used, from a copy.
//!
//! What was used longest ago goes first, and only leaves go, so a beginning outlives what follows. Of a class with a
//! window any page may go, and those go first which no end of a prompt or of a sequence sees: others go on from there.
//! Pages that sequences hold too are passed over: to give them up would free nothing.

use super::events::{self, CacheEvent};
use super::pages::Pool;
use crate::disk::Name;
use graph::{Adapted, Keep, PageId};
use kernels::KV_PAGE;
use std::collections::{BTreeMap, BTreeSet};

/// A node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(u32);

/// The empty beginning.
pub(super) const ROOT: NodeId = NodeId(0);

#[derive(Debug)]
struct Node {
    parent: NodeId,
    /// Of all tokens up to its end, if what is cached goes to a disk.
    name: Option<Name>,
    /// The same in short, if changes are told.
    number: u64,
    tokens: Vec<u32>,           // 1 to KV_PAGE; none at the root
    pages: Vec<Option<PageId>>, // [class]
    /// By class, whether a sequence is likely to go on that sees this page.
    seen: Vec<bool>,
    children: usize,
    /// Sequences that go on from here.
    pins: usize,
    used: u64,
}

impl Node {
    /// Whether nothing would be lost without it.
    fn is_spent(&self) -> bool {
        self.children == 0 && self.pins == 0 && self.pages.iter().all(Option::is_none)
    }
}

/// The tree. All its pages are held once by it.
#[derive(Debug)]
pub(super) struct Prefixes {
    nodes: Vec<Node>,
    unused: Vec<NodeId>,
    /// By parent and tokens: what agrees most with given tokens stands beside their place.
    children: BTreeMap<(NodeId, Vec<u32>), NodeId>,
    /// Leaves by last use.
    leaves: BTreeSet<(u64, NodeId)>,
    /// By class whose pages nodes may lack (behind a window, or where no snapshot was made of a state):
    /// the nodes that have its page, those that are seen last, by last use.
    windowed: Vec<Option<BTreeSet<(bool, u64, NodeId)>>>,
    /// The empty beginnings of sequences with adapters, by these.
    adapted: Vec<(Vec<Adapted>, NodeId)>,
    /// What tells of each adapter, if nodes have names.
    hashes: Vec<[u8; 16]>,
    clock: u64,
    /// What has changed since it was asked for, if somebody asks.
    events: Option<Vec<CacheEvent>>,
}

impl Prefixes {
    /// Empty, for these classes.
    pub(super) fn new(classes: impl Iterator<Item = Keep>) -> Prefixes {
        let lacking = |keep| (keep != Keep::All).then(BTreeSet::new);
        let windowed: Vec<_> = classes.map(lacking).collect();
        let (pages, seen) = (vec![None; windowed.len()], vec![false; windowed.len()]);
        let root = Node {
            parent: ROOT,
            name: None,
            number: 0,
            tokens: Vec::new(),
            pages,
            seen,
            children: 0,
            pins: 1,
            used: 0,
        };
        Prefixes {
            nodes: vec![root],
            unused: Vec::new(),
            children: BTreeMap::new(),
            leaves: BTreeSet::new(),
            windowed,
            adapted: Vec::new(),
            hashes: Vec::new(),
            clock: 0,
            events: None,
        }
    }

    /// Gives all nodes to come names, of which `root` is the first; those of sequences with adapters also tell of
    /// these, by their hashes.
    pub(super) fn name_nodes(&mut self, root: Name, adapters: Vec<[u8; 16]>) {
        self.nodes[0].name = Some(root);
        self.hashes = adapters;
    }

    /// The empty beginning of sequences with these adapters. It stays as long as something follows it or is pinned to it.
    pub(super) fn root(&mut self, set: &[Adapted]) -> NodeId {
        if set.is_empty() {
            return ROOT;
        }
        if let Some((_, id)) = self.adapted.iter().find(|(own, _)| own == set) {
            return *id;
        }
        let words = |one: &Adapted| {
            let hash = self.hashes.get(one.adapter as usize).copied().unwrap_or_default();
            let words = hash.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
            // No token is so large.
            [u32::MAX, one.scale.to_bits()].into_iter().chain(words).collect::<Vec<_>>()
        };
        let words: Vec<u32> = set.iter().flat_map(words).collect();
        let classes = self.windowed.len();
        let id = self.place(Node {
            parent: ROOT,
            name: self.node(ROOT).name.map(|name| name.then(&words)),
            number: events::beginning(set),
            tokens: Vec::new(),
            pages: vec![None; classes],
            seen: vec![false; classes],
            children: 0,
            pins: 0,
            used: 0,
        });
        self.nodes[id.0 as usize].parent = id;
        self.adapted.push((set.to_vec(), id));
        id
    }

    /// Whether a node is an empty beginning.
    pub(super) fn is_root(&self, id: NodeId) -> bool {
        self.node(id).parent == id
    }

    fn place(&mut self, node: Node) -> NodeId {
        match self.unused.pop() {
            Some(id) => {
                self.nodes[id.0 as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                NodeId(self.nodes.len() as u32 - 1)
            }
        }
    }

    /// Keeps in mind what changes from now on.
    pub(super) fn tell_events(&mut self) {
        self.events = Some(Vec::new());
    }

    /// What has changed since this was asked.
    pub(super) fn take_events(&mut self) -> Vec<CacheEvent> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn tell_stored(&mut self, id: NodeId) {
        if self.events.is_none() {
            return;
        }
        let node = self.node(id);
        let parent = (!self.is_root(node.parent)).then(|| self.node(node.parent).number);
        let adapter = match self.set_of(node.parent) {
            [] => None,
            [one] => Some(one.adapter),
            // No event can say which several.
            _ => return,
        };
        let (block, tokens) = (node.number, node.tokens.clone());
        if let Some(events) = &mut self.events {
            events.push(CacheEvent::Stored { block, parent, tokens, adapter });
        }
    }

    /// The adapters of what stands behind a node.
    fn set_of(&self, mut id: NodeId) -> &[Adapted] {
        // Without adapters, which is usual, the way up says nothing.
        if self.adapted.is_empty() {
            return &[];
        }
        while !self.is_root(id) {
            id = self.node(id).parent;
        }
        self.adapted.iter().find(|(_, own)| *own == id).map_or(&[], |(set, _)| set)
    }

    /// What a node is called.
    pub(super) fn name(&self, id: NodeId) -> Option<Name> {
        self.node(id).name
    }

    /// The node with exactly these tokens behind another.
    pub(super) fn child(&self, parent: NodeId, tokens: &[u32]) -> Option<NodeId> {
        self.children.get(&(parent, tokens.to_vec())).copied()
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// Tokens of a node.
    pub(super) fn len(&self, id: NodeId) -> usize {
        self.node(id).tokens.len()
    }

    /// A node's pages by class.
    pub(super) fn pages(&self, id: NodeId) -> &[Option<PageId>] {
        &self.node(id).pages
    }

    /// The child that agrees with `tokens` in most of its first tokens, and in how many.
    fn closest(&self, parent: NodeId, tokens: &[u32]) -> Option<(NodeId, usize)> {
        let key = (parent, tokens.to_vec());
        let before = self.children.range(..=&key).next_back();
        let after = self.children.range(&key..).next();
        let agree = |entry: Option<(&(NodeId, Vec<u32>), &NodeId)>| {
            let ((of, own), &id) = entry?;
            let same = own.iter().zip(tokens).take_while(|(a, b)| a == b).count();
            (*of == parent && same > 0).then_some((id, same))
        };
        [agree(before), agree(after)].into_iter().flatten().max_by_key(|(_, same)| *same)
    }

    /// The longest beginning of `tokens` that the tree has behind `root`: nodes from the first page on, and of each
    /// how many tokens agree, which is all but in the last.
    pub(super) fn find(&self, root: NodeId, tokens: &[u32]) -> Vec<(NodeId, usize)> {
        let mut path = Vec::new();
        let mut at = root;
        let mut rest = tokens;
        while let Some((id, same)) = self.closest(at, &rest[..rest.len().min(KV_PAGE)]) {
            path.push((id, same));
            if same < KV_PAGE {
                break;
            }
            (at, rest) = (id, &rest[KV_PAGE..]);
        }
        path
    }

    /// Marks nodes as used now, beginnings last.
    pub(super) fn touch(&mut self, path: impl DoubleEndedIterator<Item = NodeId>) {
        for id in path.rev() {
            self.clock += 1;
            let (old, new) = (self.node(id).used, self.clock);
            if self.leaves.remove(&(old, id)) {
                self.leaves.insert((new, id));
            }
            let seen = &self.nodes[id.0 as usize].seen;
            for (nodes, &seen) in self.windowed.iter_mut().zip(seen) {
                if let Some(nodes) = nodes
                    && nodes.remove(&(seen, old, id))
                {
                    nodes.insert((seen, new, id));
                }
            }
            self.nodes[id.0 as usize].used = new;
        }
    }

    /// Puts a page of `tokens` after `parent`, which is full, unless it is there already. The tree
    /// takes hold of the pages that it has not. `None` if it has as much and more, of a page that
    /// is not full.
    pub(super) fn insert(
        &mut self,
        parent: NodeId,
        tokens: &[u32],
        pages: &[Option<PageId>],
        pools: &mut [Pool],
    ) -> Option<NodeId> {
        if let Some((id, same)) = self.closest(parent, tokens) {
            let len = self.node(id).tokens.len();
            if same == len && same == tokens.len() {
                self.complete(id, pages, pools);
                self.touch(std::iter::once(id));
                return Some(id);
            }
            if same == tokens.len() {
                self.touch(std::iter::once(id));
                return None;
            }
            if same == len {
                // The new one has all of it, and more.
                self.remove(id, pools);
            }
        }
        self.clock += 1;
        let node = Node {
            parent,
            name: self.node(parent).name.map(|name| name.then(tokens)),
            number: match self.events {
                Some(_) => events::number(self.node(parent).number, tokens),
                None => 0,
            },
            tokens: tokens.to_vec(),
            pages: vec![None; pools.len()],
            seen: vec![false; pools.len()],
            children: 0,
            pins: 0,
            used: self.clock,
        };
        let id = self.place(node);
        let above = &mut self.nodes[parent.0 as usize];
        above.children += 1;
        let of_parent = (above.used, parent);
        self.leaves.remove(&of_parent);
        self.leaves.insert((self.clock, id));
        self.children.insert((parent, tokens.to_vec()), id);
        self.complete(id, pages, pools);
        if tokens.len() == KV_PAGE {
            self.tell_stored(id);
        }
        Some(id)
    }

    /// Gives a node the pages that it lacks.
    pub(super) fn complete(&mut self, id: NodeId, pages: &[Option<PageId>], pools: &mut [Pool]) {
        let node = &mut self.nodes[id.0 as usize];
        let own = node.pages.iter_mut().zip(&node.seen).zip(pages).zip(pools);
        for ((((own, &seen), &page), pool), windowed) in own.zip(&mut self.windowed) {
            if let (None, Some(page)) = (*own, page) {
                pool.cache(page);
                *own = Some(page);
                windowed.iter_mut().for_each(|nodes| _ = nodes.insert((seen, node.used, id)));
            }
        }
    }

    /// A sequence is likely to go on that sees this node's page of a class.
    pub(super) fn see(&mut self, id: NodeId, class: usize) {
        let node = &mut self.nodes[id.0 as usize];
        if let Some(nodes) = &mut self.windowed[class]
            && nodes.remove(&(node.seen[class], node.used, id))
        {
            node.seen[class] = true;
            nodes.insert((true, node.used, id));
        }
    }

    /// Gives up a leaf.
    fn remove(&mut self, id: NodeId, pools: &mut [Pool]) {
        let node = &mut self.nodes[id.0 as usize];
        let (parent, used) = (node.parent, node.used);
        let tokens = std::mem::take(&mut node.tokens);
        let full = tokens.len() == KV_PAGE;
        if let Some(events) = self.events.as_mut().filter(|_| full) {
            events.push(CacheEvent::Removed { block: node.number });
        }
        let seen = std::mem::take(&mut node.seen);
        node.name = None;
        for (page, pool) in node.pages.iter_mut().zip(&mut *pools) {
            page.take().into_iter().for_each(|page| pool.forget(page));
        }
        for (nodes, seen) in self.windowed.iter_mut().zip(seen) {
            nodes.iter_mut().for_each(|nodes| _ = nodes.remove(&(seen, used, id)));
        }
        self.leaves.remove(&(used, id));
        self.children.remove(&(parent, tokens));
        self.unused.push(id);
        let above = &mut self.nodes[parent.0 as usize];
        above.children -= 1;
        if above.children == 0 {
            if above.parent != parent {
                self.leaves.insert((above.used, parent));
            }
            self.remove_if_spent(parent, pools);
        }
    }

    /// Without windows no node is: it has the page for which it is there.
    fn remove_if_spent(&mut self, id: NodeId, pools: &mut [Pool]) {
        if !self.node(id).is_spent() {
            return;
        }
        if self.is_root(id) {
            self.adapted.retain(|(_, own)| *own != id);
            self.unused.push(id);
            return;
        }
        self.remove(id, pools);
    }

    /// Gives up a node that nobody goes on from, and whose pages nobody else holds; false if it is another.
    pub(super) fn give_up(&mut self, id: NodeId, pools: &mut [Pool]) -> bool {
        let node = self.node(id);
        let mut pages = node.pages.iter().zip(&*pools);
        let idle = pages.all(|(page, pool)| page.is_none_or(|page| pool.is_idle(page)));
        let free = node.children == 0 && node.pins == 0 && idle;
        if free {
            self.remove(id, pools);
        }
        free
    }

    /// A sequence goes on from a node, which stays until it does not any more.
    pub(super) fn pin(&mut self, id: NodeId) {
        self.nodes[id.0 as usize].pins += 1;
    }

    pub(super) fn unpin(&mut self, id: NodeId, pools: &mut [Pool]) {
        self.nodes[id.0 as usize].pins -= 1;
        self.remove_if_spent(id, pools);
    }

    /// The node `levels` above.
    pub(super) fn above(&self, id: NodeId, levels: usize) -> NodeId {
        (0..levels).fold(id, |id, _| self.node(id).parent)
    }

    /// Gives up a page of a class that nobody else holds; false if there is none.
    pub(super) fn evict(&mut self, class: usize, pools: &mut [Pool]) -> bool {
        let idle =
            |id: NodeId| self.node(id).pages[class].is_some_and(|page| pools[class].is_idle(page));
        let Some(nodes) = &self.windowed[class] else {
            let oldest = self.leaves.iter().map(|leaf| leaf.1).find(|id| idle(*id));
            return oldest.map(|id| self.remove(id, pools)).is_some();
        };
        let Some(key) = nodes.iter().copied().find(|(_, _, id)| idle(*id)) else {
            return false;
        };
        let id = key.2;
        let node = &mut self.nodes[id.0 as usize];
        node.pages[class].take().into_iter().for_each(|page| pools[class].forget(page));
        node.seen[class] = false;
        self.windowed[class].iter_mut().for_each(|nodes| _ = nodes.remove(&key));
        self.remove_if_spent(id, pools);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_as_they_come_and_go() {
        let mut tree = Prefixes::new([Keep::All].into_iter());
        let mut pools = vec![Pool::new(Keep::All, 8)];
        tree.tell_events();
        let full = |first: u32| (first..first + KV_PAGE as u32).collect::<Vec<u32>>();
        let put = |tree: &mut Prefixes, pools: &mut [Pool], parent, tokens: &[u32]| {
            let page = pools[0].take().unwrap();
            let node = tree.insert(parent, tokens, &[Some(page)], pools).unwrap();
            pools[0].release(page);
            node
        };
        let one = put(&mut tree, &mut pools, ROOT, &full(0));
        let two = put(&mut tree, &mut pools, one, &full(100));
        put(&mut tree, &mut pools, two, &[1, 2, 3]);
        let told = tree.take_events();
        let numbers: Vec<u64> = told
            .iter()
            .map(|event| match event {
                CacheEvent::Stored { block, .. } => *block,
                other => panic!("{other:?}"),
            })
            .collect();
        let stored = |at: usize, parent, tokens| CacheEvent::Stored {
            block: numbers[at],
            parent,
            tokens,
            adapter: None,
        };
        assert_eq!(told, [stored(0, None, full(0)), stored(1, Some(numbers[0]), full(100))]);
        // With an adapter the same tokens are another block.
        let root = tree.root(&set(3, 0.5));
        tree.pin(root);
        put(&mut tree, &mut pools, root, &full(0));
        match tree.take_events().as_slice() {
            [CacheEvent::Stored { block, parent: None, adapter: Some(3), .. }] => {
                assert_ne!(*block, numbers[0]);
            }
            other => panic!("{other:?}"),
        }
        while tree.evict(0, &mut pools) {}
        let gone = tree.take_events();
        let removed = |at: usize| gone.contains(&CacheEvent::Removed { block: numbers[at] });
        assert!(gone.len() == 3 && removed(0) && removed(1), "{gone:?}");
    }

    fn set(adapter: u32, scale: f32) -> Vec<Adapted> {
        vec![Adapted { adapter, scale }]
    }

    #[test]
    fn a_set_has_a_beginning_as_long_as_something_follows_it() {
        let mut tree = Prefixes::new([Keep::All].into_iter());
        let mut pools = vec![Pool::new(Keep::All, 4)];
        let a = tree.root(&set(0, 1.0));
        tree.pin(a);
        assert!(tree.is_root(a) && tree.root(&set(0, 1.0)) == a && tree.root(&[]) == ROOT);
        let page = pools[0].take().unwrap();
        let leaf = tree.insert(a, &[1, 2], &[Some(page)], &mut pools).unwrap();
        pools[0].release(page);
        assert_eq!(tree.find(a, &[1, 2]), [(leaf, 2)]);
        assert!(tree.find(ROOT, &[1, 2]).is_empty());
        tree.unpin(a, &mut pools);
        assert_eq!(tree.adapted.len(), 1, "a page follows it");
        assert!(tree.evict(0, &mut pools) && tree.leaves.is_empty());
        assert!(tree.adapted.is_empty(), "nothing does");
        assert_eq!(pools[0].free(), 4);
        // Its place is another's.
        assert_eq!(tree.root(&set(0, 0.5)), leaf.min(a));
    }

    #[test]
    fn names_tell_of_what_adapters_do() {
        let names = |hashes: [u8; 2]| {
            let mut tree = Prefixes::new([Keep::All].into_iter());
            tree.name_nodes(Name::of_test(), hashes.map(|byte| [byte; 16]).to_vec());
            let mut name = |set: &[Adapted]| {
                let root = tree.root(set);
                tree.name(root).unwrap()
            };
            [name(&[]), name(&set(0, 1.0)), name(&set(1, 1.0)), name(&set(0, 0.5))]
        };
        let [none, a, b, half] = names([3, 4]);
        assert!(none != a && a != b && a != half);
        let [same, b_now, a_now, _] = names([4, 3]);
        assert_eq!((same, b_now, a_now), (none, b, a), "numbers do not count");
    }
}
