# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_twinpath_global_optspecs
    string join \n h/help V/version
end

function __fish_twinpath_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_twinpath_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_twinpath_using_subcommand
    set -l cmd (__fish_twinpath_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c twinpath -n "__fish_twinpath_needs_command" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_needs_command" -s V -l version -d 'Print version'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "serve" -d 'Serve on both paths'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "bridge" -d 'Carry frames between a device and a kernel interface in its place: an exception port'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "switch" -d 'Carry frames between interfaces and processes: an Ethernet switch'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "show" -d 'Show the state of a running instance, with the reasons for its choices'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "capture" -d 'Write the frames of a fast path to a pcapng file'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "top" -d 'Show the activity of running instances per second, live'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "set" -d 'Change a running instance'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "port" -d 'Add, remove or change a port of a running switch'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "reload" -d 'Let a running instance read its configuration again'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "drain" -d 'Let a running instance answer all accepted requests, then end'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "tidy" -d 'Remove the programs that killed instances have left on interfaces'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "doctor" -d 'Examine this host: the path of each interface, obstacles, and the benefit of newer kernels'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "tune" -d 'Find settings of this machine and an interface that make replies slow; change and restore them'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "run" -d 'Run an unmodified program with a fast path for its UDP sockets'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "sockets" -d 'Own an interface: give programs without rights rings for their own UDP sockets'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "rds" -d 'Serve Reliable Datagram Sockets to the programs of this host'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "bench" -d 'Measure a service, verifying every reply'
complete -c twinpath -n "__fish_twinpath_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l on -d 'Interface to serve on, as `ip link` shows it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l path -d 'The path: auto (the best one that is safe here), xdp, xdp-zerocopy, packet or kernel (no fast path) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l attach -d 'How the program at tc is attached: tcx (BPF links), clsact (classic filters) or auto (tcx if the kernel has it) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l reflex -d 'Whether the kernel\'s programs answer requests without a worker, if a service allows it: auto (except under loads at which an awake worker answers more), always or off [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l fallback-loss-max -d 'The share of that traffic that a path may cost; path auto takes the next path above it, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l ring-frames -d 'Frames that each receive ring holds while its worker cannot read it, 2 KiB each [default: 512]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l workers -d 'Workers [default: 1]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l cpu -d 'CPUs for the workers, one for each; as an option a list such as 0,2-3 [default: not pinned]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l mode -d 'How a worker idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps) [default: adaptive]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l latency -d 'The goal of adaptive: 99 % of the packets are received within this time, such as 20us' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l cpu-budget -d 'Another goal of adaptive: at most this much of a core is spent waiting, such as 5%' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l spin-us -d 'For experts: how long adaptive spins after the last packet, us [default: learnt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l linger-ms -d 'How long the CPU latency request is held after the last traffic, ms [default: learnt; 1000 in interrupt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l latency-request -d 'When a CPU latency request is held during traffic: auto (if it was measured to help), always or never [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l latency-request-scope -d 'The CPUs of the latency request: machine (all), cpu (the workers\' alone) or auto (the workers\' where that serves) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l latency-request-max-exit-us -d 'The maximum exit latency of the idle states that the latency request permits, us; 0: all but the shallowest [default: measured]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l priority -d 'Priority of the workers: auto (before other threads while they use little of the CPU), normal, slice:US, nice:N or fifo:N (real time) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l spin-share-max -d 'Maximum share of the CPU that a worker spins, at a priority that keeps other threads off, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l fail-open-ms -d 'The kernel serves once frames have waited for this time, because a worker is stuck or was stopped, ms; 0: never [default: 100]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l connections -d 'Maximum number of TCP connections; a further one closes the one that is idle longest [default: 1024]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l connections-per-source -d 'Maximum number of connections of one source, an IPv4 address or 64 bits of an IPv6 address; others are refused [default: 256]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l connection-bytes -d 'Bytes that a connection may hold of an incomplete request, and the same number of replies that its peer has not read [default: 262144]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l queued-bytes -d 'Bytes that all connections may hold together; beyond that, the one that has waited longest is closed [default: 67108864]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l idle-timeout-s -d 'A connection is closed after this time without a byte, s; 0: none [default: 600]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l request-timeout-s -d 'A connection is closed if a request takes longer to arrive, s; 0: none [default: 30]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l send-timeout-s -d 'A connection is closed if its peer reads none of its replies for this time, s; 0: none [default: 60]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l drain-ms -d 'How long connections may take to end when the instance stops, ms [default: 5000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l take-over-ms -d 'How long an instance that takes over from this one may be silent before it serves; then this one continues, ms [default: 30000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l reply-rate -d 'UDP replies per second to one source, of those as large as their requests, per worker; others are dropped; 0: none [default: 50000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l reflex-rate -d 'Replies per second by the kernel\'s programs, to all sources together; workers give the others; 0: no replies [default: 250000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l kept-replies -d 'Replies that all services together keep for the kernel\'s programs; active ones displace others; 0: none [default: 4096]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l socket -d 'The command socket of `twinpath show` and `twinpath set` [default: SERVICE-IFACE-PID.sock in the run directory]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l sandbox -d 'After its start the instance gives up rights, files and system calls that it no longer needs: on or off [default: on]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l metrics -d 'Metrics for Prometheus over HTTP at /metrics; without an address on loopback [default: no metrics]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l take-over -d 'Take over the sockets of the running instance with this command socket, which then drains and ends' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l standby -d 'Hold the sockets of the running instance with this command socket, and serve only when it is stuck or has ended' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l config -d 'Read the configuration from a TOML file; options given here override it' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l log-format -d 'The format of the log on standard error: text, or one JSON object per line' -r -f -a "text\t''
json\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l ready-fd -d 'Write the line `ready` to this descriptor, a pipe or a file, instead of to standard output' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l measure-fallback -d 'Measure at start how much attaching slows the kernel\'s own traffic (some 3 s); path auto takes it into account'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -l any-source-port -d 'Answer requests from every source port, including ports of services that would answer the reply (7, 53, 123, ...)'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -s q -l quiet -d 'Log only that it is ready, and errors'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -f -a "echo" -d 'Sends back every byte (RFC 862)'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -f -a "discard" -d 'Drops every byte (RFC 863), and reports how much arrived of a stream of `bench stream`'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -f -a "chargen" -d 'Sends characters for as long as the peer reads (RFC 864); TCP only'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -f -a "reflect" -d 'Sends frames of one EtherType back to their sender, addresses swapped; fast path only'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -f -a "rpc" -d 'Answers ONC RPC version 2: NFSv3 (NULL, GETATTR) and MOUNT, on a small fixed tree in memory'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -f -a "nfs" -d 'Serves directories of this host by NFS version 3, to clients that mount them'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and not __fish_seen_subcommand_from echo discard chargen reflect rpc nfs help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l udp -d 'UDP port, served on the fast path and on the kernel path' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l tcp -d 'TCP port, served on the kernel path, and on the fast path if tcp_path says so' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l tcp-path -d 'Path of the TCP connections: the kernel\'s, or the fast one and the kernel\'s for what that does not take [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l address -d 'Serve the ports only at these own addresses; may be given again [default: all]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l flow -d 'Claim only these UDP flows, peer first, such as udp,10.9.0.1:4444,10.9.0.2:7; may be given again [default: the port is claimed]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l source -d 'Serve the ports only to senders in these prefixes; may be given again [default: everybody]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l on -d 'Interface to serve on, as `ip link` shows it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l path -d 'The path: auto (the best one that is safe here), xdp, xdp-zerocopy, packet or kernel (no fast path) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l attach -d 'How the program at tc is attached: tcx (BPF links), clsact (classic filters) or auto (tcx if the kernel has it) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l reflex -d 'Whether the kernel\'s programs answer requests without a worker, if a service allows it: auto (except under loads at which an awake worker answers more), always or off [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l fallback-loss-max -d 'The share of that traffic that a path may cost; path auto takes the next path above it, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l ring-frames -d 'Frames that each receive ring holds while its worker cannot read it, 2 KiB each [default: 512]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l workers -d 'Workers [default: 1]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l cpu -d 'CPUs for the workers, one for each; as an option a list such as 0,2-3 [default: not pinned]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l mode -d 'How a worker idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps) [default: adaptive]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l latency -d 'The goal of adaptive: 99 % of the packets are received within this time, such as 20us' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l cpu-budget -d 'Another goal of adaptive: at most this much of a core is spent waiting, such as 5%' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l spin-us -d 'For experts: how long adaptive spins after the last packet, us [default: learnt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l linger-ms -d 'How long the CPU latency request is held after the last traffic, ms [default: learnt; 1000 in interrupt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l latency-request -d 'When a CPU latency request is held during traffic: auto (if it was measured to help), always or never [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l latency-request-scope -d 'The CPUs of the latency request: machine (all), cpu (the workers\' alone) or auto (the workers\' where that serves) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l latency-request-max-exit-us -d 'The maximum exit latency of the idle states that the latency request permits, us; 0: all but the shallowest [default: measured]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l priority -d 'Priority of the workers: auto (before other threads while they use little of the CPU), normal, slice:US, nice:N or fifo:N (real time) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l spin-share-max -d 'Maximum share of the CPU that a worker spins, at a priority that keeps other threads off, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l fail-open-ms -d 'The kernel serves once frames have waited for this time, because a worker is stuck or was stopped, ms; 0: never [default: 100]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l connections -d 'Maximum number of TCP connections; a further one closes the one that is idle longest [default: 1024]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l connections-per-source -d 'Maximum number of connections of one source, an IPv4 address or 64 bits of an IPv6 address; others are refused [default: 256]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l connection-bytes -d 'Bytes that a connection may hold of an incomplete request, and the same number of replies that its peer has not read [default: 262144]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l queued-bytes -d 'Bytes that all connections may hold together; beyond that, the one that has waited longest is closed [default: 67108864]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l idle-timeout-s -d 'A connection is closed after this time without a byte, s; 0: none [default: 600]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l request-timeout-s -d 'A connection is closed if a request takes longer to arrive, s; 0: none [default: 30]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l send-timeout-s -d 'A connection is closed if its peer reads none of its replies for this time, s; 0: none [default: 60]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l drain-ms -d 'How long connections may take to end when the instance stops, ms [default: 5000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l take-over-ms -d 'How long an instance that takes over from this one may be silent before it serves; then this one continues, ms [default: 30000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l reply-rate -d 'UDP replies per second to one source, of those as large as their requests, per worker; others are dropped; 0: none [default: 50000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l reflex-rate -d 'Replies per second by the kernel\'s programs, to all sources together; workers give the others; 0: no replies [default: 250000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l kept-replies -d 'Replies that all services together keep for the kernel\'s programs; active ones displace others; 0: none [default: 4096]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l socket -d 'The command socket of `twinpath show` and `twinpath set` [default: SERVICE-IFACE-PID.sock in the run directory]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l sandbox -d 'After its start the instance gives up rights, files and system calls that it no longer needs: on or off [default: on]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l metrics -d 'Metrics for Prometheus over HTTP at /metrics; without an address on loopback [default: no metrics]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l take-over -d 'Take over the sockets of the running instance with this command socket, which then drains and ends' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l standby -d 'Hold the sockets of the running instance with this command socket, and serve only when it is stuck or has ended' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l config -d 'Read the configuration from a TOML file; options given here override it' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l log-format -d 'The format of the log on standard error: text, or one JSON object per line' -r -f -a "text\t''
json\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l ready-fd -d 'Write the line `ready` to this descriptor, a pipe or a file, instead of to standard output' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l measure-fallback -d 'Measure at start how much attaching slows the kernel\'s own traffic (some 3 s); path auto takes it into account'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -l any-source-port -d 'Answer requests from every source port, including ports of services that would answer the reply (7, 53, 123, ...)'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -s q -l quiet -d 'Log only that it is ready, and errors'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from echo" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l udp -d 'UDP port, served on the fast path and on the kernel path' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l tcp -d 'TCP port, served on the kernel path, and on the fast path if tcp_path says so' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l tcp-path -d 'Path of the TCP connections: the kernel\'s, or the fast one and the kernel\'s for what that does not take [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l address -d 'Serve the ports only at these own addresses; may be given again [default: all]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l flow -d 'Claim only these UDP flows, peer first, such as udp,10.9.0.1:4444,10.9.0.2:7; may be given again [default: the port is claimed]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l source -d 'Serve the ports only to senders in these prefixes; may be given again [default: everybody]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l on -d 'Interface to serve on, as `ip link` shows it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l path -d 'The path: auto (the best one that is safe here), xdp, xdp-zerocopy, packet or kernel (no fast path) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l attach -d 'How the program at tc is attached: tcx (BPF links), clsact (classic filters) or auto (tcx if the kernel has it) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l reflex -d 'Whether the kernel\'s programs answer requests without a worker, if a service allows it: auto (except under loads at which an awake worker answers more), always or off [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l fallback-loss-max -d 'The share of that traffic that a path may cost; path auto takes the next path above it, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l ring-frames -d 'Frames that each receive ring holds while its worker cannot read it, 2 KiB each [default: 512]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l workers -d 'Workers [default: 1]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l cpu -d 'CPUs for the workers, one for each; as an option a list such as 0,2-3 [default: not pinned]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l mode -d 'How a worker idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps) [default: adaptive]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l latency -d 'The goal of adaptive: 99 % of the packets are received within this time, such as 20us' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l cpu-budget -d 'Another goal of adaptive: at most this much of a core is spent waiting, such as 5%' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l spin-us -d 'For experts: how long adaptive spins after the last packet, us [default: learnt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l linger-ms -d 'How long the CPU latency request is held after the last traffic, ms [default: learnt; 1000 in interrupt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l latency-request -d 'When a CPU latency request is held during traffic: auto (if it was measured to help), always or never [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l latency-request-scope -d 'The CPUs of the latency request: machine (all), cpu (the workers\' alone) or auto (the workers\' where that serves) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l latency-request-max-exit-us -d 'The maximum exit latency of the idle states that the latency request permits, us; 0: all but the shallowest [default: measured]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l priority -d 'Priority of the workers: auto (before other threads while they use little of the CPU), normal, slice:US, nice:N or fifo:N (real time) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l spin-share-max -d 'Maximum share of the CPU that a worker spins, at a priority that keeps other threads off, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l fail-open-ms -d 'The kernel serves once frames have waited for this time, because a worker is stuck or was stopped, ms; 0: never [default: 100]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l connections -d 'Maximum number of TCP connections; a further one closes the one that is idle longest [default: 1024]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l connections-per-source -d 'Maximum number of connections of one source, an IPv4 address or 64 bits of an IPv6 address; others are refused [default: 256]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l connection-bytes -d 'Bytes that a connection may hold of an incomplete request, and the same number of replies that its peer has not read [default: 262144]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l queued-bytes -d 'Bytes that all connections may hold together; beyond that, the one that has waited longest is closed [default: 67108864]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l idle-timeout-s -d 'A connection is closed after this time without a byte, s; 0: none [default: 600]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l request-timeout-s -d 'A connection is closed if a request takes longer to arrive, s; 0: none [default: 30]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l send-timeout-s -d 'A connection is closed if its peer reads none of its replies for this time, s; 0: none [default: 60]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l drain-ms -d 'How long connections may take to end when the instance stops, ms [default: 5000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l take-over-ms -d 'How long an instance that takes over from this one may be silent before it serves; then this one continues, ms [default: 30000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l reply-rate -d 'UDP replies per second to one source, of those as large as their requests, per worker; others are dropped; 0: none [default: 50000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l reflex-rate -d 'Replies per second by the kernel\'s programs, to all sources together; workers give the others; 0: no replies [default: 250000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l kept-replies -d 'Replies that all services together keep for the kernel\'s programs; active ones displace others; 0: none [default: 4096]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l socket -d 'The command socket of `twinpath show` and `twinpath set` [default: SERVICE-IFACE-PID.sock in the run directory]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l sandbox -d 'After its start the instance gives up rights, files and system calls that it no longer needs: on or off [default: on]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l metrics -d 'Metrics for Prometheus over HTTP at /metrics; without an address on loopback [default: no metrics]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l take-over -d 'Take over the sockets of the running instance with this command socket, which then drains and ends' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l standby -d 'Hold the sockets of the running instance with this command socket, and serve only when it is stuck or has ended' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l config -d 'Read the configuration from a TOML file; options given here override it' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l log-format -d 'The format of the log on standard error: text, or one JSON object per line' -r -f -a "text\t''
json\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l ready-fd -d 'Write the line `ready` to this descriptor, a pipe or a file, instead of to standard output' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l measure-fallback -d 'Measure at start how much attaching slows the kernel\'s own traffic (some 3 s); path auto takes it into account'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -l any-source-port -d 'Answer requests from every source port, including ports of services that would answer the reply (7, 53, 123, ...)'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -s q -l quiet -d 'Log only that it is ready, and errors'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from discard" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l udp -d 'UDP port, served on the fast path and on the kernel path' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l tcp -d 'TCP port, served on the kernel path, and on the fast path if tcp_path says so' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l tcp-path -d 'Path of the TCP connections: the kernel\'s, or the fast one and the kernel\'s for what that does not take [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l address -d 'Serve the ports only at these own addresses; may be given again [default: all]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l flow -d 'Claim only these UDP flows, peer first, such as udp,10.9.0.1:4444,10.9.0.2:7; may be given again [default: the port is claimed]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l source -d 'Serve the ports only to senders in these prefixes; may be given again [default: everybody]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l on -d 'Interface to serve on, as `ip link` shows it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l path -d 'The path: auto (the best one that is safe here), xdp, xdp-zerocopy, packet or kernel (no fast path) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l attach -d 'How the program at tc is attached: tcx (BPF links), clsact (classic filters) or auto (tcx if the kernel has it) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l reflex -d 'Whether the kernel\'s programs answer requests without a worker, if a service allows it: auto (except under loads at which an awake worker answers more), always or off [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l fallback-loss-max -d 'The share of that traffic that a path may cost; path auto takes the next path above it, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l ring-frames -d 'Frames that each receive ring holds while its worker cannot read it, 2 KiB each [default: 512]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l workers -d 'Workers [default: 1]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l cpu -d 'CPUs for the workers, one for each; as an option a list such as 0,2-3 [default: not pinned]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l mode -d 'How a worker idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps) [default: adaptive]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l latency -d 'The goal of adaptive: 99 % of the packets are received within this time, such as 20us' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l cpu-budget -d 'Another goal of adaptive: at most this much of a core is spent waiting, such as 5%' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l spin-us -d 'For experts: how long adaptive spins after the last packet, us [default: learnt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l linger-ms -d 'How long the CPU latency request is held after the last traffic, ms [default: learnt; 1000 in interrupt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l latency-request -d 'When a CPU latency request is held during traffic: auto (if it was measured to help), always or never [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l latency-request-scope -d 'The CPUs of the latency request: machine (all), cpu (the workers\' alone) or auto (the workers\' where that serves) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l latency-request-max-exit-us -d 'The maximum exit latency of the idle states that the latency request permits, us; 0: all but the shallowest [default: measured]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l priority -d 'Priority of the workers: auto (before other threads while they use little of the CPU), normal, slice:US, nice:N or fifo:N (real time) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l spin-share-max -d 'Maximum share of the CPU that a worker spins, at a priority that keeps other threads off, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l fail-open-ms -d 'The kernel serves once frames have waited for this time, because a worker is stuck or was stopped, ms; 0: never [default: 100]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l connections -d 'Maximum number of TCP connections; a further one closes the one that is idle longest [default: 1024]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l connections-per-source -d 'Maximum number of connections of one source, an IPv4 address or 64 bits of an IPv6 address; others are refused [default: 256]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l connection-bytes -d 'Bytes that a connection may hold of an incomplete request, and the same number of replies that its peer has not read [default: 262144]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l queued-bytes -d 'Bytes that all connections may hold together; beyond that, the one that has waited longest is closed [default: 67108864]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l idle-timeout-s -d 'A connection is closed after this time without a byte, s; 0: none [default: 600]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l request-timeout-s -d 'A connection is closed if a request takes longer to arrive, s; 0: none [default: 30]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l send-timeout-s -d 'A connection is closed if its peer reads none of its replies for this time, s; 0: none [default: 60]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l drain-ms -d 'How long connections may take to end when the instance stops, ms [default: 5000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l take-over-ms -d 'How long an instance that takes over from this one may be silent before it serves; then this one continues, ms [default: 30000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l reply-rate -d 'UDP replies per second to one source, of those as large as their requests, per worker; others are dropped; 0: none [default: 50000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l reflex-rate -d 'Replies per second by the kernel\'s programs, to all sources together; workers give the others; 0: no replies [default: 250000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l kept-replies -d 'Replies that all services together keep for the kernel\'s programs; active ones displace others; 0: none [default: 4096]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l socket -d 'The command socket of `twinpath show` and `twinpath set` [default: SERVICE-IFACE-PID.sock in the run directory]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l sandbox -d 'After its start the instance gives up rights, files and system calls that it no longer needs: on or off [default: on]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l metrics -d 'Metrics for Prometheus over HTTP at /metrics; without an address on loopback [default: no metrics]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l take-over -d 'Take over the sockets of the running instance with this command socket, which then drains and ends' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l standby -d 'Hold the sockets of the running instance with this command socket, and serve only when it is stuck or has ended' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l config -d 'Read the configuration from a TOML file; options given here override it' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l log-format -d 'The format of the log on standard error: text, or one JSON object per line' -r -f -a "text\t''
json\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l ready-fd -d 'Write the line `ready` to this descriptor, a pipe or a file, instead of to standard output' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l measure-fallback -d 'Measure at start how much attaching slows the kernel\'s own traffic (some 3 s); path auto takes it into account'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -l any-source-port -d 'Answer requests from every source port, including ports of services that would answer the reply (7, 53, 123, ...)'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -s q -l quiet -d 'Log only that it is ready, and errors'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from chargen" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l ethertype -d 'EtherType of the frames that reflect serves, such as 0x88b5' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l on -d 'Interface to serve on, as `ip link` shows it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l path -d 'The path: auto (the best one that is safe here), xdp, xdp-zerocopy, packet or kernel (no fast path) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l attach -d 'How the program at tc is attached: tcx (BPF links), clsact (classic filters) or auto (tcx if the kernel has it) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l reflex -d 'Whether the kernel\'s programs answer requests without a worker, if a service allows it: auto (except under loads at which an awake worker answers more), always or off [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l fallback-loss-max -d 'The share of that traffic that a path may cost; path auto takes the next path above it, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l ring-frames -d 'Frames that each receive ring holds while its worker cannot read it, 2 KiB each [default: 512]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l workers -d 'Workers [default: 1]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l cpu -d 'CPUs for the workers, one for each; as an option a list such as 0,2-3 [default: not pinned]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l mode -d 'How a worker idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps) [default: adaptive]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l latency -d 'The goal of adaptive: 99 % of the packets are received within this time, such as 20us' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l cpu-budget -d 'Another goal of adaptive: at most this much of a core is spent waiting, such as 5%' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l spin-us -d 'For experts: how long adaptive spins after the last packet, us [default: learnt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l linger-ms -d 'How long the CPU latency request is held after the last traffic, ms [default: learnt; 1000 in interrupt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l latency-request -d 'When a CPU latency request is held during traffic: auto (if it was measured to help), always or never [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l latency-request-scope -d 'The CPUs of the latency request: machine (all), cpu (the workers\' alone) or auto (the workers\' where that serves) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l latency-request-max-exit-us -d 'The maximum exit latency of the idle states that the latency request permits, us; 0: all but the shallowest [default: measured]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l priority -d 'Priority of the workers: auto (before other threads while they use little of the CPU), normal, slice:US, nice:N or fifo:N (real time) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l spin-share-max -d 'Maximum share of the CPU that a worker spins, at a priority that keeps other threads off, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l fail-open-ms -d 'The kernel serves once frames have waited for this time, because a worker is stuck or was stopped, ms; 0: never [default: 100]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l connections -d 'Maximum number of TCP connections; a further one closes the one that is idle longest [default: 1024]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l connections-per-source -d 'Maximum number of connections of one source, an IPv4 address or 64 bits of an IPv6 address; others are refused [default: 256]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l connection-bytes -d 'Bytes that a connection may hold of an incomplete request, and the same number of replies that its peer has not read [default: 262144]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l queued-bytes -d 'Bytes that all connections may hold together; beyond that, the one that has waited longest is closed [default: 67108864]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l idle-timeout-s -d 'A connection is closed after this time without a byte, s; 0: none [default: 600]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l request-timeout-s -d 'A connection is closed if a request takes longer to arrive, s; 0: none [default: 30]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l send-timeout-s -d 'A connection is closed if its peer reads none of its replies for this time, s; 0: none [default: 60]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l drain-ms -d 'How long connections may take to end when the instance stops, ms [default: 5000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l take-over-ms -d 'How long an instance that takes over from this one may be silent before it serves; then this one continues, ms [default: 30000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l reply-rate -d 'UDP replies per second to one source, of those as large as their requests, per worker; others are dropped; 0: none [default: 50000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l reflex-rate -d 'Replies per second by the kernel\'s programs, to all sources together; workers give the others; 0: no replies [default: 250000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l kept-replies -d 'Replies that all services together keep for the kernel\'s programs; active ones displace others; 0: none [default: 4096]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l socket -d 'The command socket of `twinpath show` and `twinpath set` [default: SERVICE-IFACE-PID.sock in the run directory]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l sandbox -d 'After its start the instance gives up rights, files and system calls that it no longer needs: on or off [default: on]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l metrics -d 'Metrics for Prometheus over HTTP at /metrics; without an address on loopback [default: no metrics]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l take-over -d 'Take over the sockets of the running instance with this command socket, which then drains and ends' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l standby -d 'Hold the sockets of the running instance with this command socket, and serve only when it is stuck or has ended' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l config -d 'Read the configuration from a TOML file; options given here override it' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l log-format -d 'The format of the log on standard error: text, or one JSON object per line' -r -f -a "text\t''
json\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l ready-fd -d 'Write the line `ready` to this descriptor, a pipe or a file, instead of to standard output' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l measure-fallback -d 'Measure at start how much attaching slows the kernel\'s own traffic (some 3 s); path auto takes it into account'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -l any-source-port -d 'Answer requests from every source port, including ports of services that would answer the reply (7, 53, 123, ...)'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -s q -l quiet -d 'Log only that it is ready, and errors'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from reflect" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l udp -d 'UDP port, served on the fast path and on the kernel path' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l tcp -d 'TCP port, served on the kernel path, and on the fast path if tcp_path says so' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l tcp-path -d 'Path of the TCP connections: the kernel\'s, or the fast one and the kernel\'s for what that does not take [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l address -d 'Serve the ports only at these own addresses; may be given again [default: all]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l flow -d 'Claim only these UDP flows, peer first, such as udp,10.9.0.1:4444,10.9.0.2:7; may be given again [default: the port is claimed]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l source -d 'Serve the ports only to senders in these prefixes; may be given again [default: everybody]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l on -d 'Interface to serve on, as `ip link` shows it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l path -d 'The path: auto (the best one that is safe here), xdp, xdp-zerocopy, packet or kernel (no fast path) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l attach -d 'How the program at tc is attached: tcx (BPF links), clsact (classic filters) or auto (tcx if the kernel has it) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l reflex -d 'Whether the kernel\'s programs answer requests without a worker, if a service allows it: auto (except under loads at which an awake worker answers more), always or off [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l fallback-loss-max -d 'The share of that traffic that a path may cost; path auto takes the next path above it, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l ring-frames -d 'Frames that each receive ring holds while its worker cannot read it, 2 KiB each [default: 512]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l workers -d 'Workers [default: 1]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l cpu -d 'CPUs for the workers, one for each; as an option a list such as 0,2-3 [default: not pinned]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l mode -d 'How a worker idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps) [default: adaptive]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l latency -d 'The goal of adaptive: 99 % of the packets are received within this time, such as 20us' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l cpu-budget -d 'Another goal of adaptive: at most this much of a core is spent waiting, such as 5%' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l spin-us -d 'For experts: how long adaptive spins after the last packet, us [default: learnt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l linger-ms -d 'How long the CPU latency request is held after the last traffic, ms [default: learnt; 1000 in interrupt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l latency-request -d 'When a CPU latency request is held during traffic: auto (if it was measured to help), always or never [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l latency-request-scope -d 'The CPUs of the latency request: machine (all), cpu (the workers\' alone) or auto (the workers\' where that serves) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l latency-request-max-exit-us -d 'The maximum exit latency of the idle states that the latency request permits, us; 0: all but the shallowest [default: measured]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l priority -d 'Priority of the workers: auto (before other threads while they use little of the CPU), normal, slice:US, nice:N or fifo:N (real time) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l spin-share-max -d 'Maximum share of the CPU that a worker spins, at a priority that keeps other threads off, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l fail-open-ms -d 'The kernel serves once frames have waited for this time, because a worker is stuck or was stopped, ms; 0: never [default: 100]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l connections -d 'Maximum number of TCP connections; a further one closes the one that is idle longest [default: 1024]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l connections-per-source -d 'Maximum number of connections of one source, an IPv4 address or 64 bits of an IPv6 address; others are refused [default: 256]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l connection-bytes -d 'Bytes that a connection may hold of an incomplete request, and the same number of replies that its peer has not read [default: 262144]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l queued-bytes -d 'Bytes that all connections may hold together; beyond that, the one that has waited longest is closed [default: 67108864]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l idle-timeout-s -d 'A connection is closed after this time without a byte, s; 0: none [default: 600]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l request-timeout-s -d 'A connection is closed if a request takes longer to arrive, s; 0: none [default: 30]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l send-timeout-s -d 'A connection is closed if its peer reads none of its replies for this time, s; 0: none [default: 60]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l drain-ms -d 'How long connections may take to end when the instance stops, ms [default: 5000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l take-over-ms -d 'How long an instance that takes over from this one may be silent before it serves; then this one continues, ms [default: 30000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l reply-rate -d 'UDP replies per second to one source, of those as large as their requests, per worker; others are dropped; 0: none [default: 50000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l reflex-rate -d 'Replies per second by the kernel\'s programs, to all sources together; workers give the others; 0: no replies [default: 250000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l kept-replies -d 'Replies that all services together keep for the kernel\'s programs; active ones displace others; 0: none [default: 4096]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l record-bytes -d 'Maximum length of a record over TCP; a connection that sends a longer one is closed [default: 65536]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l fragments -d 'Maximum number of fragments of a record; a connection that sends more is closed [default: as many as fit into limits.connection_bytes]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l duplicates -d 'Number of kept replies to calls that must run once, to be sent again, of all workers together [default: 1024]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l duplicate-age-s -d 'How long these replies are kept, s [default: 120]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l socket -d 'The command socket of `twinpath show` and `twinpath set` [default: SERVICE-IFACE-PID.sock in the run directory]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l sandbox -d 'After its start the instance gives up rights, files and system calls that it no longer needs: on or off [default: on]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l metrics -d 'Metrics for Prometheus over HTTP at /metrics; without an address on loopback [default: no metrics]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l take-over -d 'Take over the sockets of the running instance with this command socket, which then drains and ends' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l standby -d 'Hold the sockets of the running instance with this command socket, and serve only when it is stuck or has ended' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l config -d 'Read the configuration from a TOML file; options given here override it' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l log-format -d 'The format of the log on standard error: text, or one JSON object per line' -r -f -a "text\t''
json\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l ready-fd -d 'Write the line `ready` to this descriptor, a pipe or a file, instead of to standard output' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l measure-fallback -d 'Measure at start how much attaching slows the kernel\'s own traffic (some 3 s); path auto takes it into account'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l any-source-port -d 'Answer requests from every source port, including ports of services that would answer the reply (7, 53, 123, ...)'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -l rpcbind -d 'Register the programs with rpcbind on this host, until the end'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -s q -l quiet -d 'Log only that it is ready, and errors'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from rpc" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l udp -d 'UDP port, served on the fast path and on the kernel path' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l tcp -d 'TCP port, served on the kernel path, and on the fast path if tcp_path says so' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l tcp-path -d 'Path of the TCP connections: the kernel\'s, or the fast one and the kernel\'s for what that does not take [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l address -d 'Serve the ports only at these own addresses; may be given again [default: all]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l flow -d 'Claim only these UDP flows, peer first, such as udp,10.9.0.1:4444,10.9.0.2:7; may be given again [default: the port is claimed]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l source -d 'Serve the ports only to senders in these prefixes; may be given again [default: everybody]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l export -d 'Export this directory, as /srv/data:rw,client=10.0.0.0/8; without options it is read-only for everybody; may be given again' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l on -d 'Interface to serve on, as `ip link` shows it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l path -d 'The path: auto (the best one that is safe here), xdp, xdp-zerocopy, packet or kernel (no fast path) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l attach -d 'How the program at tc is attached: tcx (BPF links), clsact (classic filters) or auto (tcx if the kernel has it) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l reflex -d 'Whether the kernel\'s programs answer requests without a worker, if a service allows it: auto (except under loads at which an awake worker answers more), always or off [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l fallback-loss-max -d 'The share of that traffic that a path may cost; path auto takes the next path above it, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l ring-frames -d 'Frames that each receive ring holds while its worker cannot read it, 2 KiB each [default: 512]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l workers -d 'Workers [default: 1]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l cpu -d 'CPUs for the workers, one for each; as an option a list such as 0,2-3 [default: not pinned]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l mode -d 'How a worker idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps) [default: adaptive]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l latency -d 'The goal of adaptive: 99 % of the packets are received within this time, such as 20us' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l cpu-budget -d 'Another goal of adaptive: at most this much of a core is spent waiting, such as 5%' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l spin-us -d 'For experts: how long adaptive spins after the last packet, us [default: learnt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l linger-ms -d 'How long the CPU latency request is held after the last traffic, ms [default: learnt; 1000 in interrupt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l latency-request -d 'When a CPU latency request is held during traffic: auto (if it was measured to help), always or never [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l latency-request-scope -d 'The CPUs of the latency request: machine (all), cpu (the workers\' alone) or auto (the workers\' where that serves) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l latency-request-max-exit-us -d 'The maximum exit latency of the idle states that the latency request permits, us; 0: all but the shallowest [default: measured]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l priority -d 'Priority of the workers: auto (before other threads while they use little of the CPU), normal, slice:US, nice:N or fifo:N (real time) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l spin-share-max -d 'Maximum share of the CPU that a worker spins, at a priority that keeps other threads off, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l fail-open-ms -d 'The kernel serves once frames have waited for this time, because a worker is stuck or was stopped, ms; 0: never [default: 100]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l connections -d 'Maximum number of TCP connections; a further one closes the one that is idle longest [default: 1024]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l connections-per-source -d 'Maximum number of connections of one source, an IPv4 address or 64 bits of an IPv6 address; others are refused [default: 256]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l connection-bytes -d 'Bytes that a connection may hold of an incomplete request, and the same number of replies that its peer has not read [default: 262144]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l queued-bytes -d 'Bytes that all connections may hold together; beyond that, the one that has waited longest is closed [default: 67108864]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l idle-timeout-s -d 'A connection is closed after this time without a byte, s; 0: none [default: 600]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l request-timeout-s -d 'A connection is closed if a request takes longer to arrive, s; 0: none [default: 30]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l send-timeout-s -d 'A connection is closed if its peer reads none of its replies for this time, s; 0: none [default: 60]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l drain-ms -d 'How long connections may take to end when the instance stops, ms [default: 5000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l take-over-ms -d 'How long an instance that takes over from this one may be silent before it serves; then this one continues, ms [default: 30000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l reply-rate -d 'UDP replies per second to one source, of those as large as their requests, per worker; others are dropped; 0: none [default: 50000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l reflex-rate -d 'Replies per second by the kernel\'s programs, to all sources together; workers give the others; 0: no replies [default: 250000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l kept-replies -d 'Replies that all services together keep for the kernel\'s programs; active ones displace others; 0: none [default: 4096]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l record-bytes -d 'Maximum length of a record over TCP; a connection that sends a longer one is closed [default: 65536]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l fragments -d 'Maximum number of fragments of a record; a connection that sends more is closed [default: as many as fit into limits.connection_bytes]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l duplicates -d 'Number of kept replies to calls that must run once, to be sent again, of all workers together [default: 1024]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l duplicate-age-s -d 'How long these replies are kept, s [default: 120]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l read-bytes -d 'The most data of a READ over TCP; over UDP it is less than a datagram [default: 1048576]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l write-bytes -d 'The most data of a WRITE over TCP; over UDP it is less than a datagram [default: 1048576]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l state-directory -d 'The directory of the secret that signs file handles: without it, handles are stale after a restart [default: /var/lib/twinpath]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l socket -d 'The command socket of `twinpath show` and `twinpath set` [default: SERVICE-IFACE-PID.sock in the run directory]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l sandbox -d 'After its start the instance gives up rights, files and system calls that it no longer needs: on or off [default: on]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l metrics -d 'Metrics for Prometheus over HTTP at /metrics; without an address on loopback [default: no metrics]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l take-over -d 'Take over the sockets of the running instance with this command socket, which then drains and ends' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l standby -d 'Hold the sockets of the running instance with this command socket, and serve only when it is stuck or has ended' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l config -d 'Read the configuration from a TOML file; options given here override it' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l log-format -d 'The format of the log on standard error: text, or one JSON object per line' -r -f -a "text\t''
json\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l ready-fd -d 'Write the line `ready` to this descriptor, a pipe or a file, instead of to standard output' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l measure-fallback -d 'Measure at start how much attaching slows the kernel\'s own traffic (some 3 s); path auto takes it into account'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l any-source-port -d 'Answer requests from every source port, including ports of services that would answer the reply (7, 53, 123, ...)'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -l rpcbind -d 'Register the programs with rpcbind on this host, until the end'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -s q -l quiet -d 'Log only that it is ready, and errors'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from nfs" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from help" -f -a "echo" -d 'Sends back every byte (RFC 862)'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from help" -f -a "discard" -d 'Drops every byte (RFC 863), and reports how much arrived of a stream of `bench stream`'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from help" -f -a "chargen" -d 'Sends characters for as long as the peer reads (RFC 864); TCP only'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from help" -f -a "reflect" -d 'Sends frames of one EtherType back to their sender, addresses swapped; fast path only'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from help" -f -a "rpc" -d 'Answers ONC RPC version 2: NFSv3 (NULL, GETATTR) and MOUNT, on a small fixed tree in memory'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from help" -f -a "nfs" -d 'Serves directories of this host by NFS version 3, to clients that mount them'
complete -c twinpath -n "__fish_twinpath_using_subcommand serve; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l kernel -d 'The TAP interface to create for the kernel\'s own stack' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l carrier -d 'Who carries frames: kernel (if both interfaces are in one network namespace) or workers' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l queues -d 'Pairs of queues, each with a worker of its own' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l cpu -d 'CPUs for the workers, one for each; as an option a list such as 0,2-3 [default: not pinned]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l mode -d 'How a worker idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps) [default: interrupt; adaptive if it has a goal]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l latency -d 'The goal of adaptive: 99 % of the packets are received within this time, such as 20us' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l cpu-budget -d 'Another goal of adaptive: at most this much of a core is spent waiting, such as 5%' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l spin-us -d 'For experts: how long adaptive spins after the last packet, us [default: learnt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l linger-ms -d 'How long the CPU latency request is held after the last traffic, ms [default: learnt; 1000 in interrupt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l latency-request -d 'When a CPU latency request is held during traffic: auto (if it was measured to help), always or never [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l latency-request-scope -d 'The CPUs of the latency request: machine (all), cpu (the workers\' alone) or auto (the workers\' where that serves) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l latency-request-max-exit-us -d 'The maximum exit latency of the idle states that the latency request permits, us; 0: all but the shallowest [default: measured]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l priority -d 'Priority of the workers: auto (before other threads while they use little of the CPU), normal, slice:US, nice:N or fifo:N (real time) [default: normal]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l spin-share-max -d 'Maximum share of the CPU that a worker spins, at a priority that keeps other threads off, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l fail-open-ms -d 'The kernel serves once frames have waited for this time, because a worker is stuck or was stopped, ms; 0: never [default: 100]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l socket -d 'The command socket of `twinpath show` and `twinpath set` [default: SERVICE-IFACE-PID.sock in the run directory]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l sandbox -d 'After its start the instance gives up rights, files and system calls that it no longer needs: on or off [default: on]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l metrics -d 'Metrics for Prometheus over HTTP at /metrics; without an address on loopback [default: no metrics]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l log-format -d 'The format of the log on standard error: text, or one JSON object per line' -r -f -a "text\t''
json\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -l ready-fd -d 'Write the line `ready` to this descriptor, a pipe or a file, instead of to standard output' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -s q -l quiet -d 'Log only that it is ready, and errors'
complete -c twinpath -n "__fish_twinpath_using_subcommand bridge" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l workers -d 'Workers [default: 1]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l cpu -d 'CPUs for the workers, one for each; as an option a list such as 0,2-3 [default: not pinned]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l mode -d 'How a worker idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps) [default: interrupt; adaptive if it has a goal]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l latency -d 'The goal of adaptive: 99 % of the packets are received within this time, such as 20us' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l cpu-budget -d 'Another goal of adaptive: at most this much of a core is spent waiting, such as 5%' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l spin-us -d 'For experts: how long adaptive spins after the last packet, us [default: learnt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l linger-ms -d 'How long the CPU latency request is held after the last traffic, ms [default: learnt; 1000 in interrupt]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l latency-request -d 'When a CPU latency request is held during traffic: auto (if it was measured to help), always or never [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l latency-request-scope -d 'The CPUs of the latency request: machine (all), cpu (the workers\' alone) or auto (the workers\' where that serves) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l latency-request-max-exit-us -d 'The maximum exit latency of the idle states that the latency request permits, us; 0: all but the shallowest [default: measured]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l priority -d 'Priority of the workers: auto (before other threads while they use little of the CPU), normal, slice:US, nice:N or fifo:N (real time) [default: normal]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l spin-share-max -d 'Maximum share of the CPU that a worker spins, at a priority that keeps other threads off, % [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l fail-open-ms -d 'The kernel serves once frames have waited for this time, because a worker is stuck or was stopped, ms; 0: never [default: 100]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l socket -d 'The command socket of `twinpath show` and `twinpath set` [default: SERVICE-IFACE-PID.sock in the run directory]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l sandbox -d 'After its start the instance gives up rights, files and system calls that it no longer needs: on or off [default: on]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l metrics -d 'Metrics for Prometheus over HTTP at /metrics; without an address on loopback [default: no metrics]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l local -d 'The interface of this host itself on the switch: a TAP interface, which the switch creates [default: this host is not on it]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l port -d 'A port and its keys, such as veth1 or veth1,vlan=10 (tables [[switch.port]] in a file); may be given again' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l on-exit -d 'Who carries frames between interfaces after the switch has ended, or while it hangs: nobody (dark); the kernel bridge of the interfaces (bridge); or the kernel by its flows, for this time after the end, until the switch is started again (keep=SECONDS) [default: dark]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l static -d 'A fixed address of a port, as MAC,PORT or MAC,PORT,VLAN; may be given again' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l ageing-s -d 'How long an address is remembered after its last frame, s [default: 300]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l mac-entries -d 'Size of the address table; up to twice as many addresses are learned if they find places [default: 16384]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l loop-block-s -d 'How long a port in a loop with another port is blocked, s; 0: no search for loops [default: 10]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l controller -d 'An OpenFlow controller that the switch connects to, as tcp:HOST:PORT, tls:HOST:PORT or unix:PATH; may be given again' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l listen -d 'Address at which OpenFlow controllers and tools such as ovs-ofctl connect, as tcp:HOST:PORT, tls:HOST:PORT or unix:PATH; may be given again [default: nowhere]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l tls-key -d 'The private key for TLS with controllers, a file in PEM [default: TLS needs it]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l tls-certificate -d 'Its certificate, a file in PEM, followed by the intermediate certificates [default: TLS needs it]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l tls-ca -d 'The certificate of the authority that must have signed the controllers\' certificates, a file in PEM [default: TLS needs it]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l fail-mode -d 'Forwarding while no controller is connected: by the present flows (secure), or by learned addresses (standalone) [default: secure]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l offload -d 'Whether the kernel forwards flows, and frames between learned addresses, as far as it can, among ports that are interfaces of one network namespace (auto), or nothing (off) [default: auto]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l datapath-id -d 'The number of the switch for controllers [default: from /etc/machine-id and the switch\'s name]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l flows-max -d 'Maximum number of flows of controllers, and of groups, and of meters [default: 1000000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l packet-in-limit -d 'Maximum rate of frames from one port to controllers [default: 1000]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l config -d 'Read the configuration from a TOML file; options given here override it' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l log-format -d 'The format of the log on standard error: text, or one JSON object per line' -r -f -a "text\t''
json\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -l ready-fd -d 'Write the line `ready` to this descriptor, a pipe or a file, instead of to standard output' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -s q -l quiet -d 'Log only that it is ready, and errors'
complete -c twinpath -n "__fish_twinpath_using_subcommand switch" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand show" -l peer -d 'For `show connections`: only those of these peers, as `10.0.0.0/8`' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand show" -l port -d 'For `show connections`: only those with this port at either end' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand show" -l path -d 'For `show connections`: only those on this path' -r -f -a "fast\t'Those that workers have'
kernel\t'Those of the kernel\'s sockets'"
complete -c twinpath -n "__fish_twinpath_using_subcommand show" -l limit -d 'For `show connections`: at most so many, 1 to 10000; 100 without it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand show" -l socket -d 'The command socket of the instance, where more than one runs' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand show" -l json -d 'One JSON object instead of tables'
complete -c twinpath -n "__fish_twinpath_using_subcommand show" -l measure -d 'Measure the cost of a wake-up first (some 100 ms); for `show machine`'
complete -c twinpath -n "__fish_twinpath_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c twinpath -n "__fish_twinpath_using_subcommand capture" -l on -d 'Interface of an instance' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand capture" -s w -l write -d 'The pcapng file to write, or - for standard output' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand capture" -s c -l count -d 'End after this number of frames' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand capture" -l seconds -d 'End after this number of seconds' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand capture" -s s -l snaplen -d 'Bytes of each frame to keep; without it all, also of super-frames' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand capture" -l socket -d 'The command socket of the instance; without it, it is found by the interface' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand capture" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand top" -s n -l count -d 'End after this number of pages' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand top" -s i -l interval -d 'The interval, seconds' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand top" -l socket -d 'The command socket of one instance; without it, all running instances' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand top" -s b -l batch -d 'Text instead of a screen, one page per interval; the default if standard output is no terminal'
complete -c twinpath -n "__fish_twinpath_using_subcommand top" -l once -d 'End after one page'
complete -c twinpath -n "__fish_twinpath_using_subcommand top" -l json -d 'One JSON object per instance and interval, each on a line'
complete -c twinpath -n "__fish_twinpath_using_subcommand top" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand set; and not __fish_seen_subcommand_from worker help" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand set; and not __fish_seen_subcommand_from worker help" -f -a "worker" -d 'How a worker idles: `set worker 0 mode poll`, `set worker all latency 20us`'
complete -c twinpath -n "__fish_twinpath_using_subcommand set; and not __fish_seen_subcommand_from worker help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c twinpath -n "__fish_twinpath_using_subcommand set; and __fish_seen_subcommand_from worker" -l socket -d 'The command socket of the instance, where more than one runs' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand set; and __fish_seen_subcommand_from worker" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c twinpath -n "__fish_twinpath_using_subcommand set; and __fish_seen_subcommand_from help" -f -a "worker" -d 'How a worker idles: `set worker 0 mode poll`, `set worker all latency 20us`'
complete -c twinpath -n "__fish_twinpath_using_subcommand set; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and not __fish_seen_subcommand_from add remove set help" -l socket -d 'The command socket of the switch, where more than one instance runs' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and not __fish_seen_subcommand_from add remove set help" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and not __fish_seen_subcommand_from add remove set help" -f -a "add" -d 'Add a port: `port add veth3,vlan=10`'
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and not __fish_seen_subcommand_from add remove set help" -f -a "remove" -d 'Remove a port: `port remove veth3`'
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and not __fish_seen_subcommand_from add remove set help" -f -a "set" -d 'Change keys of a port: `port set veth3 vlan=20 mac_limit=100`'
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and not __fish_seen_subcommand_from add remove set help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and __fish_seen_subcommand_from add" -l socket -d 'The command socket of the switch, where more than one instance runs' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and __fish_seen_subcommand_from remove" -l socket -d 'The command socket of the switch, where more than one instance runs' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and __fish_seen_subcommand_from set" -l socket -d 'The command socket of the switch, where more than one instance runs' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and __fish_seen_subcommand_from help" -f -a "add" -d 'Add a port: `port add veth3,vlan=10`'
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Remove a port: `port remove veth3`'
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and __fish_seen_subcommand_from help" -f -a "set" -d 'Change keys of a port: `port set veth3 vlan=20 mac_limit=100`'
complete -c twinpath -n "__fish_twinpath_using_subcommand port; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c twinpath -n "__fish_twinpath_using_subcommand reload" -l socket -d 'The command socket of the instance, where more than one runs' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand reload" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand drain" -l timeout-ms -d 'Close the remaining connections after this time, ms; 0: at once [default: the instance\'s limits.drain_ms]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand drain" -l socket -d 'The command socket of the instance, where more than one runs' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand drain" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand tidy" -l kept -d 'Also end the flows of this switch, which continue without it (its `on_exit` is keep)' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand tidy" -l dry-run -d 'Only list them'
complete -c twinpath -n "__fish_twinpath_using_subcommand tidy" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand doctor" -l udp -d 'The UDP port of a service, to find settings of the kernel that concern only some ports' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand doctor" -l json -d 'One JSON object instead of text'
complete -c twinpath -n "__fish_twinpath_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand tune" -l cpu -d 'CPUs of the workers, as given to serve, such as 0,2-3 [default: those of the instance that runs there]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand tune" -l mode -d 'How the workers idle: adaptive, interrupt or poll [default: as the instance that runs there, or adaptive]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand tune" -l only -d 'Only these lines, by their names' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand tune" -l skip -d 'All but these lines' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand tune" -l journal -d 'The journal of former values' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand tune" -l root -d 'A directory with copies of /sys and /proc, instead of this machine' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand tune" -l check -d 'Change nothing (the default); exit code 3 if --apply would change something'
complete -c twinpath -n "__fish_twinpath_using_subcommand tune" -l apply -d 'Change the settings that are not as advised, after writing their former values to the journal'
complete -c twinpath -n "__fish_twinpath_using_subcommand tune" -l restore -d 'Restore the settings that --apply has changed: those of this interface, or all'
complete -c twinpath -n "__fish_twinpath_using_subcommand tune" -l json -d 'One JSON object instead of text'
complete -c twinpath -n "__fish_twinpath_using_subcommand tune" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand run" -l rules -d 'A file of rules: which UDP sockets of which programs have a fast path (format: twinpath-run(1)). Without it: every socket that a program binds to a port of its own choice' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand run" -l on -d 'Without rules: the interface of the fast path. Otherwise it is the interface with the address of a socket, or the only one beside the loopback' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand run" -l wait -d 'Without rules: how calls wait: adaptive, poll or interrupt' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand run" -l lease -d 'Without rules: when a socket gets its rings: earned (once it has received enough) or at-bind (bind waits for them)' -r -f -a "earned\t''
at-bind\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand run" -l owner -d 'The owner (`twinpath sockets`) of the rings, by the path at which it listens; none: no rings. Without it: an owner that is started for the program, if you have the rights for that, or else the owner of the interface at its usual path' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand run" -l explain -d 'Print the path of each UDP socket, the reason, and how much it has received by each path; to standard error, or to a file' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand run" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l on -d 'The interface' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l rules -d 'A file of rules, as for `twinpath run` (twinpath-run(1)): which sockets of which programs may have rings. Without it: all. Datagrams in a ring bypass the host\'s firewall rules for input' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l listen -d 'The socket for programs; the rights of its folder decide which may connect. Without it: /run/twinpath/INTERFACE/sockets' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l take-over -d 'Take over all programs from the owner with this command socket, which then ends; the programs notice nothing' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l programs -d 'Maximum number of programs' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l programs-per-user -d 'Maximum number of programs of one user' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l sockets-per-program -d 'Maximum number of sockets of a program; each takes 514 KiB of memory, from the program\'s first socket on' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l sockets-per-user -d 'Maximum number of sockets of all programs of one user' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l socket -d 'The command socket, for `twinpath show`' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l metrics -d 'Offer metrics for Prometheus at this address' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l sandbox -d 'Whether it gives up rights, files and system calls after its start: on or off' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l log-format -d 'The format of the log on standard error: text, or one JSON object per line' -r -f -a "text\t''
json\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -l ready-fd -d 'Write the line `ready` to this descriptor, a pipe or a file, instead of to standard output' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -s q -l quiet -d 'Log only that it is ready, and errors'
complete -c twinpath -n "__fish_twinpath_using_subcommand sockets" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -l on -d 'The interface whose addresses are served; may be repeated' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -l listen -d 'The socket for programs; the rights of its folder decide which may connect. Without it: /run/twinpath/rds/programs' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -l paths -d 'Maximum number of connections to each peer, which share its messages by the sender\'s port. More than one needs peers that name a connection\'s path by its port (twinpath, Linux since 2026)' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -l peers -d 'Maximum number of peers' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -l sockets -d 'Maximum number of sockets of programs' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -l sockets-per-user -d 'Maximum number of sockets of one user' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -l socket -d 'The command socket, for `twinpath show`' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -l metrics -d 'Offer metrics for Prometheus at this address' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -l sandbox -d 'Whether it gives up rights, files and system calls after its start: on or off' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -l log-format -d 'The format of the log on standard error: text, or one JSON object per line' -r -f -a "text\t''
json\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -l ready-fd -d 'Write the line `ready` to this descriptor, a pipe or a file, instead of to standard output' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -s q -l quiet -d 'Log only that it is ready, and errors'
complete -c twinpath -n "__fish_twinpath_using_subcommand rds" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and not __fish_seen_subcommand_from echo rpc nfs stream compare help" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and not __fish_seen_subcommand_from echo rpc nfs stream compare help" -f -a "echo" -d 'Measure an echo service with requests that each carry a pattern, and verify every reply'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and not __fish_seen_subcommand_from echo rpc nfs stream compare help" -f -a "rpc" -d 'Measure an ONC RPC service with calls of NFS version 3, and verify every reply'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and not __fish_seen_subcommand_from echo rpc nfs stream compare help" -f -a "nfs" -d 'Measure an NFS server of version 3: READ, WRITE with COMMIT, GETATTR, LOOKUP, or a listing of all directories, and verify what it answers'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and not __fish_seen_subcommand_from echo rpc nfs stream compare help" -f -a "stream" -d 'Measure how much goes through in one direction: to a service that discards it, or from one that makes it'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and not __fish_seen_subcommand_from echo rpc nfs stream compare help" -f -a "compare" -d 'Compare two saved measurements: how B stands to A, and whether that is beyond noise'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and not __fish_seen_subcommand_from echo rpc nfs stream compare help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s l -l size -d 'Payload bytes of a request' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s p -l port -d 'The port, if the target does not name it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l on -d 'The interface whose fast path is the transport; without it, kernel sockets' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l path -d 'The path: auto, xdp, packet or kernel [default: auto with --on, kernel without]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l cpu -d 'CPUs for the threads, in turn, such as 0,2-3' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l mode -d 'How to wait for replies: adaptive, interrupt (sleeping) or poll (spinning) [default: adaptive]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s a -l inflight -d 'Maximum number of unanswered requests per thread [default: 1; with --rate: 1024]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s j -l threads -d 'Threads, each with a connection or flow of its own' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l nagle -d 'Over TCP, whether the kernel may hold a request back while earlier ones are unacknowledged, to send several in one segment (Nagle\'s algorithm) [default: as ksf\'s tools, on with several in flight; off with --batch or --rate]' -r -f -a "on\t''
off\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l rate -d 'Requests per second of all threads together, independent of replies; latency counts from the due time of a request' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l arrivals -d 'How --rate is spread over time: even (the default), jitter:PERCENT, poisson, bursts:SIZE:GAP_US, or steps:MS:PERCENT' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l arrivals-seed -d 'The seed of the due times; the same seed gives the same sequence [default: drawn]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s c -l count -d 'End a run after this number of requests of all threads; k, M or G after the number multiply it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l duration -d 'End a run after this number of seconds [default: 5]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l warmup -d 'Send for this number of seconds before counting [default: 0.2; with --paper: 0]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l timeout -d 'A request without an answer after this number of seconds is lost' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l loss-max -d 'Fail (exit code 1) if more than this percentage of the requests is lost [default: any may be]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s i -l iterations -d 'Number of runs, each on new connections, with one line each; the report has the median of the runs' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s q -l quantiles -d 'The percentiles to show, separated by commas [default: 50,90,99,99.9]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s d -l output-dir -d 'Write into this directory: the report, an HDR log, and each run\'s latencies as numbers and as a plot' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l hdr -d 'Also write the round-trip times of each run to an HdrHistogram log (V2)' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l plot -d 'Also draw the distribution of the round-trip times, of all runs together' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s u -l udp -d 'Over UDP'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l tcp -d 'Over TCP, one connection per thread'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l batch -d 'Send all requests that are due with one call, and receive all waiting replies with one; without it, each call sends one request or receives one reply'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l segments -d 'With --batch over UDP, send them as one message, which the kernel segments (UDP_SEGMENT), and receive replies as it has coalesced them (UDP_GRO)'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l paper -d 'Measure as ksf\'s README does: 99 runs of 1,000,000 requests per thread, no warm-up, its quantiles; other options override that'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s m -l running-average -d 'Report the average of the runs so far instead of their median'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s x -l extended -d 'Show more: times and rates of the threads, system calls, CPU time per request'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s H -l no-header -d 'Print one line per run, without a line of column names'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l latency-request -d 'Hold a CPU latency request during the runs: all CPUs of the machine stay in their shallowest idle state'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -l json -d 'Print one JSON object instead of a table'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from echo" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l proc -d 'The procedure to call' -r -f -a "null\t'Nothing: no arguments, no results'
getattr\t'A file\'s attributes'"
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s A -l auth -d 'The credential of each call' -r -f -a "none\t'AUTH_NONE'
sys\t'AUTH_SYS: this machine\'s name, and the caller\'s user and groups'
unix\t'AUTH_SYS under its former name'"
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l fragments -d 'Number of record fragments of each call, 1 to 16; the first one has one byte, and so does the last of three or more' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l export -d 'The export whose root GETATTR asks for; a MOUNT call gets its handle' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l mount-port -d 'Where MOUNT is served [default: the target\'s own port, or else where its rpcbind says]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l handle -d 'The file handle for GETATTR, in hexadecimal digits' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s p -l port -d 'The port, if the target does not name it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l on -d 'The interface whose fast path is the transport; without it, kernel sockets' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l path -d 'The path: auto, xdp, packet or kernel [default: auto with --on, kernel without]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l cpu -d 'CPUs for the threads, in turn, such as 0,2-3' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l mode -d 'How to wait for replies: adaptive, interrupt (sleeping) or poll (spinning) [default: adaptive]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s a -l inflight -d 'Maximum number of unanswered requests per thread [default: 1; with --rate: 1024]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s j -l threads -d 'Threads, each with a connection or flow of its own' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l nagle -d 'Over TCP, whether the kernel may hold a request back while earlier ones are unacknowledged, to send several in one segment (Nagle\'s algorithm) [default: as ksf\'s tools, on with several in flight; off with --batch or --rate]' -r -f -a "on\t''
off\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l rate -d 'Requests per second of all threads together, independent of replies; latency counts from the due time of a request' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l arrivals -d 'How --rate is spread over time: even (the default), jitter:PERCENT, poisson, bursts:SIZE:GAP_US, or steps:MS:PERCENT' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l arrivals-seed -d 'The seed of the due times; the same seed gives the same sequence [default: drawn]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s c -l count -d 'End a run after this number of requests of all threads; k, M or G after the number multiply it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l duration -d 'End a run after this number of seconds [default: 5]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l warmup -d 'Send for this number of seconds before counting [default: 0.2; with --paper: 0]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l timeout -d 'A request without an answer after this number of seconds is lost' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l loss-max -d 'Fail (exit code 1) if more than this percentage of the requests is lost [default: any may be]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s i -l iterations -d 'Number of runs, each on new connections, with one line each; the report has the median of the runs' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s q -l quantiles -d 'The percentiles to show, separated by commas [default: 50,90,99,99.9]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s d -l output-dir -d 'Write into this directory: the report, an HDR log, and each run\'s latencies as numbers and as a plot' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l hdr -d 'Also write the round-trip times of each run to an HdrHistogram log (V2)' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l plot -d 'Also draw the distribution of the round-trip times, of all runs together' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s f -d 'Split each call into three record fragments: --fragments 3'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s u -l udp -d 'Over UDP'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l tcp -d 'Over TCP, one connection per thread'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l batch -d 'Send all requests that are due with one call, and receive all waiting replies with one; without it, each call sends one request or receives one reply'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l segments -d 'With --batch over UDP, send them as one message, which the kernel segments (UDP_SEGMENT), and receive replies as it has coalesced them (UDP_GRO)'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l paper -d 'Measure as ksf\'s README does: 99 runs of 1,000,000 requests per thread, no warm-up, its quantiles; other options override that'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s m -l running-average -d 'Report the average of the runs so far instead of their median'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s x -l extended -d 'Show more: times and rates of the threads, system calls, CPU time per request'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s H -l no-header -d 'Print one line per run, without a line of column names'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l latency-request -d 'Hold a CPU latency request during the runs: all CPUs of the machine stay in their shallowest idle state'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -l json -d 'Print one JSON object instead of a table'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from rpc" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l export -d 'The export to mount' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l proc -d 'What to measure' -r -f -a "read\t'READ of the blocks of a file'
write\t'WRITE of the blocks of a file, and COMMIT'
getattr\t'GETATTR of files in turn'
lookup\t'LOOKUP of names in turn'
list\t'READDIRPLUS of all directories, one page after the other as `ls -lR` has it: each run is one listing'"
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l file -d 'In the export, the file to read, or the directory to ask about or to list. Without it, READ and WRITE make files of their own, which they remove at the end, and the others take the export\'s root' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s l -l size -d 'Bytes of a READ or WRITE [default: 1048576, over UDP 32768; at most what the server takes]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l file-size -d 'Bytes of the file that is read or written, one for each thread' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l writes-per-commit -d 'Number of WRITEs before each COMMIT; the server may keep their data in memory [default: one COMMIT for each pass over the file]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l mount-port -d 'Where MOUNT is served [default: the target\'s own port, or else where its rpcbind says]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s p -l port -d 'The port, if the target does not name it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l on -d 'The interface whose fast path is the transport; without it, kernel sockets' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l path -d 'The path: auto, xdp, packet or kernel [default: auto with --on, kernel without]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l cpu -d 'CPUs for the threads, in turn, such as 0,2-3' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l mode -d 'How to wait for replies: adaptive, interrupt (sleeping) or poll (spinning) [default: adaptive]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s a -l inflight -d 'Maximum number of unanswered requests per thread [default: 1; with --rate: 1024]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s j -l threads -d 'Threads, each with a connection or flow of its own' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l nagle -d 'Over TCP, whether the kernel may hold a request back while earlier ones are unacknowledged, to send several in one segment (Nagle\'s algorithm) [default: as ksf\'s tools, on with several in flight; off with --batch or --rate]' -r -f -a "on\t''
off\t''"
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l rate -d 'Requests per second of all threads together, independent of replies; latency counts from the due time of a request' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l arrivals -d 'How --rate is spread over time: even (the default), jitter:PERCENT, poisson, bursts:SIZE:GAP_US, or steps:MS:PERCENT' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l arrivals-seed -d 'The seed of the due times; the same seed gives the same sequence [default: drawn]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s c -l count -d 'End a run after this number of requests of all threads; k, M or G after the number multiply it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l duration -d 'End a run after this number of seconds [default: 5]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l warmup -d 'Send for this number of seconds before counting [default: 0.2; with --paper: 0]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l timeout -d 'A request without an answer after this number of seconds is lost' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l loss-max -d 'Fail (exit code 1) if more than this percentage of the requests is lost [default: any may be]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s i -l iterations -d 'Number of runs, each on new connections, with one line each; the report has the median of the runs' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s q -l quantiles -d 'The percentiles to show, separated by commas [default: 50,90,99,99.9]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s d -l output-dir -d 'Write into this directory: the report, an HDR log, and each run\'s latencies as numbers and as a plot' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l hdr -d 'Also write the round-trip times of each run to an HdrHistogram log (V2)' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l plot -d 'Also draw the distribution of the round-trip times, of all runs together' -r -F
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s u -l udp -d 'Over UDP'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l tcp -d 'Over TCP, one connection per thread'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l batch -d 'Send all requests that are due with one call, and receive all waiting replies with one; without it, each call sends one request or receives one reply'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l segments -d 'With --batch over UDP, send them as one message, which the kernel segments (UDP_SEGMENT), and receive replies as it has coalesced them (UDP_GRO)'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l paper -d 'Measure as ksf\'s README does: 99 runs of 1,000,000 requests per thread, no warm-up, its quantiles; other options override that'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s m -l running-average -d 'Report the average of the runs so far instead of their median'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s x -l extended -d 'Show more: times and rates of the threads, system calls, CPU time per request'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s H -l no-header -d 'Print one line per run, without a line of column names'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l latency-request -d 'Hold a CPU latency request during the runs: all CPUs of the machine stay in their shallowest idle state'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -l json -d 'Print one JSON object instead of a table'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from nfs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -s p -l port -d 'The port, if the target does not name it' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -l on -d 'The interface whose fast path is the transport; without it, kernel sockets' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -l path -d 'The path: auto, xdp, packet or kernel [default: auto with --on, kernel without]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -l cpu -d 'CPUs for the threads, in turn, such as 0,2-3' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -l mode -d 'How to wait for replies: adaptive, interrupt (sleeping) or poll (spinning) [default: adaptive]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -s b -l rate -d 'Over UDP, bits of payload per second of all streams together; k, M or G after the number multiply it [default: as many as possible]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -s l -l size -d 'Payload bytes of a datagram, or of a system call over TCP [default: those of one packet; 131072]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -s j -l threads -l connections -d 'Streams, each with a thread and a connection or flow of its own' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -l duration -d 'End after this number of seconds' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -l timeout -d 'Seconds that the service may take to answer a question over UDP, or to read what is on its way over TCP' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -l loss-max -d 'Over UDP, fail (exit code 1) if more than this percentage of the datagrams is lost [default: any may be]' -r
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -s u -l udp -d 'Datagrams over UDP, to a `twinpath serve discard`, which counts them'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -l tcp -d 'Bytes over TCP, to any service that discards them (the default)'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -s R -l reverse -d 'Receive, over TCP, from a service that sends without being asked, such as chargen'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -s x -l extended -d 'Show more: every stream by itself, and system calls'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -l latency-request -d 'Hold a CPU latency request meanwhile: all CPUs of the machine stay in their shallowest idle state'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -l json -d 'Print one JSON object instead of a table'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from stream" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from compare" -l force -d 'Compare measurements even if their settings differ'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from compare" -l json -d 'Print one JSON object instead of a table'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from compare" -s h -l help -d 'Print help'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "echo" -d 'Measure an echo service with requests that each carry a pattern, and verify every reply'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "rpc" -d 'Measure an ONC RPC service with calls of NFS version 3, and verify every reply'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "nfs" -d 'Measure an NFS server of version 3: READ, WRITE with COMMIT, GETATTR, LOOKUP, or a listing of all directories, and verify what it answers'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "stream" -d 'Measure how much goes through in one direction: to a service that discards it, or from one that makes it'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "compare" -d 'Compare two saved measurements: how B stands to A, and whether that is beyond noise'
complete -c twinpath -n "__fish_twinpath_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "serve" -d 'Serve on both paths'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "bridge" -d 'Carry frames between a device and a kernel interface in its place: an exception port'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "switch" -d 'Carry frames between interfaces and processes: an Ethernet switch'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "show" -d 'Show the state of a running instance, with the reasons for its choices'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "capture" -d 'Write the frames of a fast path to a pcapng file'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "top" -d 'Show the activity of running instances per second, live'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "set" -d 'Change a running instance'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "port" -d 'Add, remove or change a port of a running switch'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "reload" -d 'Let a running instance read its configuration again'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "drain" -d 'Let a running instance answer all accepted requests, then end'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "tidy" -d 'Remove the programs that killed instances have left on interfaces'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "doctor" -d 'Examine this host: the path of each interface, obstacles, and the benefit of newer kernels'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "tune" -d 'Find settings of this machine and an interface that make replies slow; change and restore them'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "run" -d 'Run an unmodified program with a fast path for its UDP sockets'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "sockets" -d 'Own an interface: give programs without rights rings for their own UDP sockets'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "rds" -d 'Serve Reliable Datagram Sockets to the programs of this host'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "bench" -d 'Measure a service, verifying every reply'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and not __fish_seen_subcommand_from serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from serve" -f -a "echo" -d 'Sends back every byte (RFC 862)'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from serve" -f -a "discard" -d 'Drops every byte (RFC 863), and reports how much arrived of a stream of `bench stream`'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from serve" -f -a "chargen" -d 'Sends characters for as long as the peer reads (RFC 864); TCP only'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from serve" -f -a "reflect" -d 'Sends frames of one EtherType back to their sender, addresses swapped; fast path only'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from serve" -f -a "rpc" -d 'Answers ONC RPC version 2: NFSv3 (NULL, GETATTR) and MOUNT, on a small fixed tree in memory'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from serve" -f -a "nfs" -d 'Serves directories of this host by NFS version 3, to clients that mount them'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from set" -f -a "worker" -d 'How a worker idles: `set worker 0 mode poll`, `set worker all latency 20us`'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from port" -f -a "add" -d 'Add a port: `port add veth3,vlan=10`'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from port" -f -a "remove" -d 'Remove a port: `port remove veth3`'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from port" -f -a "set" -d 'Change keys of a port: `port set veth3 vlan=20 mac_limit=100`'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "echo" -d 'Measure an echo service with requests that each carry a pattern, and verify every reply'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "rpc" -d 'Measure an ONC RPC service with calls of NFS version 3, and verify every reply'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "nfs" -d 'Measure an NFS server of version 3: READ, WRITE with COMMIT, GETATTR, LOOKUP, or a listing of all directories, and verify what it answers'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "stream" -d 'Measure how much goes through in one direction: to a service that discards it, or from one that makes it'
complete -c twinpath -n "__fish_twinpath_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "compare" -d 'Compare two saved measurements: how B stands to A, and whether that is beyond noise'
