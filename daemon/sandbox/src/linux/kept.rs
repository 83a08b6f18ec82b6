//! What goes on outside the sandbox for a command while it runs: its control group, and the way to the proxy.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};

use super::groups::Groups;
use crate::policy::PROXY_PORT;
use crate::proxy::relay::Relay;

/// Connections that wait to be taken.
const WAITING_MAX: i32 = 128;

/// Held while a command runs.
#[derive(Debug)]
pub(crate) struct Kept {
    groups: Groups,
    listener: Option<Listener>,
    relay: Option<Relay>,
}

/// Where a command's own listener comes from, and where its connections go.
#[derive(Debug)]
pub(super) struct Listener {
    from: UnixStream,
    proxy: PathBuf,
}

impl Kept {
    pub(super) fn new(groups: Groups, listener: Option<Listener>) -> Self {
        Self { groups, listener, relay: None }
    }

    /// Takes over what the command's process has handed out; it has become the command by now, and is what limits hold.
    pub(crate) fn started(&mut self, command: u32, members: impl Fn() -> Vec<u32> + Send + 'static) -> io::Result<()> {
        self.groups.take_in(command, members)?;
        if let Some(listener) = self.listener.take() {
            self.relay = Some(Relay::begin(received(&listener.from)?, listener.proxy)?);
        }
        Ok(())
    }
}

/// Both ends of the way a listener takes out of the command's process.
pub(super) fn handing_out(proxy: &Path) -> io::Result<(Listener, UnixStream)> {
    let (from, to) = UnixStream::pair()?;
    Ok((Listener { from, proxy: proxy.to_path_buf() }, to))
}

/// Makes a listener on this network's loopback and sends it out. System calls only.
pub(super) fn hand_out_listener(to: &UnixStream) -> io::Result<()> {
    let listener = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, PROXY_PORT))?;
    rustix::net::listen(&listener, WAITING_MAX)?;
    let descriptors = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    // A message without a byte carries nothing.
    rustix::net::sendmsg(to, &[io::IoSlice::new(b"l")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn received(from: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    // It was sent before the process became the command, or it never will be.
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    rustix::net::recvmsg(from, &mut [io::IoSliceMut::new(&mut byte)], &mut control, flags)?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptor.ok_or_else(|| io::Error::other("the command's process handed out no listener"))
}
