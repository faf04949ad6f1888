//! The network, and sockets of all kinds.

use super::Outside::*;
use super::Reason::*;

attempts! {
    tcp_to_the_host: Works, "s = socket.create_connection(('127.0.0.1', TCP), 5); s.send(b'x'); return s.recv(1) == b'x'";
    tcp_over_version_6: Depends, "s = socket.create_connection(('::1', TCP6), 5); s.send(b'x'); return s.recv(1) == b'x'";
    tcp_to_all_addresses_of_this_host: Works, "s = socket.create_connection(('0.0.0.0', TCP), 5); s.send(b'x'); return s.recv(1) == b'x'";
    udp_to_the_host: Works, "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20); s.connect(('127.0.0.1', UDP)); s.send(b'x'); return s.recv(1) == b'x'";
    // With IP_RECVERR a refusal is told at once, and not waited for.
    a_name_server_of_ones_own: Works, "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20); s.setsockopt(socket.IPPROTO_IP, 11, 1)
s.sendto(b'\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\1x\\0\\0\\1\\0\\1', ('127.0.0.1', UDP)); return len(s.recv(99)) > 12";
    the_resolvers_configuration: Works, "return os.path.exists('/etc/resolv.conf')";
    raw_sockets: WorksForRoot, "return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).fileno() > 0";
    packet_sockets: WorksForRoot, "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW).fileno() > 0";
    netlink_sockets: Works, "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).fileno() > 0";
    vsock_sockets: Depends, "return socket.socket(40, socket.SOCK_STREAM).fileno() > 0";
    crypto_sockets: Depends, "return socket.socket(38, socket.SOCK_SEQPACKET).fileno() > 0";
    bluetooth_sockets: Depends, "return socket.socket(31, socket.SOCK_RAW, 1).fileno() > 0";
    multipath_sockets: Depends, "return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).fileno() > 0";
    udp_lite_sockets: Depends, "return socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136).fileno() > 0";
    udp_lite_sockets_over_version_6: Depends, "return socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, 136).fileno() > 0";
    ping_sockets: Depends, "return socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).fileno() > 0";
    pairs_of_other_sockets: Depends, "return check(libc.socketpair(30, 1, 0, ctypes.create_string_buffer(8)))";
    abstract_sockets: Works, "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + ABSTRACT); return s.recv(1) == b'!'";
    sockets_in_the_file_system: Works, "s = socket.socket(socket.AF_UNIX); s.connect(SOCKET); return s.recv(1) == b'!'";
    buffers_beyond_the_limit: WorksForRoot, "return socket.socket().setsockopt(socket.SOL_SOCKET, 33, 1) is None";
    the_network_cards_of_the_host: Depends, "s = socket.socket()
def is_up(name): return fcntl.ioctl(s, 0x8913, struct.pack('40s', name.encode()))[16] & 1
return any(name != 'lo' and is_up(name) for _, name in socket.if_nameindex())";
    a_setting_of_a_network_card: WorksForRoot, "s = socket.socket(); mtu = fcntl.ioctl(s, 0x8921, struct.pack('40s', b'lo')); fcntl.ioctl(s, 0x8922, mtu); return True";
    a_setting_of_its_network: NotTried(Machine), "return os.write(os.open('/proc/sys/net/ipv4/tcp_rmem', os.O_WRONLY), b'4096 131072 67108864') > 0";
    a_tunnel: Depends, "return opened('/dev/net/tun')";
    // It leaves the machine in no case: its time to live is 0.
    a_name_by_multicast: Depends, "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0); return s.sendto(bytes(12), ('224.0.0.251', 5353)) == 12";
    a_packet_mark: WorksForRoot, "return socket.socket().setsockopt(socket.SOL_SOCKET, 36, 1) is None";
    a_foreign_address: WorksForRoot, "return socket.socket().setsockopt(socket.IPPROTO_IP, 19, 1) is None";
    forged_connections: WorksForRoot, "return socket.socket().setsockopt(socket.IPPROTO_TCP, 19, 1) is None";
    a_forged_sender: WorksForRoot, "a, b = socket.socketpair(); b.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack('3i', 1, 0, 0))]); return True";
    any_other_family: Works, "def made(family, kind):
    try: return socket.socket(family, kind).fileno() > 0
    except OSError: return False
return any(made(family, kind) for family in [16, *range(3, 10), *range(11, 50)] for kind in (1, 2, 3, 5))";
    the_log_of_the_system: Depends, "return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect('/dev/log') is None";
    the_bus_of_the_system: Depends, "return socket.socket(socket.AF_UNIX).connect('/run/dbus/system_bus_socket') is None";
    a_container_engine: Depends, "def reached(path):
    try: return socket.socket(socket.AF_UNIX).connect(path) is None
    except OSError: return False
return any(map(reached, ['/run/docker.sock', '/run/containerd/containerd.sock', '/run/podman/podman.sock', '/run/crio/crio.sock']))";
    credentials_of_the_cloud: NotTried(Outward), "socket.create_connection(('169.254.169.254', 80), 2); return True";
    descriptors_in_the_runners_socket: NotTried(Inside), "s = socket.socket(fileno=os.dup(100)); return bool(socket.recv_fds(s, 1, 8, socket.MSG_DONTWAIT)[1])";
}
