_twinpath() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="twinpath"
                ;;
            twinpath,bench)
                cmd="twinpath__subcmd__bench"
                ;;
            twinpath,bridge)
                cmd="twinpath__subcmd__bridge"
                ;;
            twinpath,capture)
                cmd="twinpath__subcmd__capture"
                ;;
            twinpath,doctor)
                cmd="twinpath__subcmd__doctor"
                ;;
            twinpath,drain)
                cmd="twinpath__subcmd__drain"
                ;;
            twinpath,help)
                cmd="twinpath__subcmd__help"
                ;;
            twinpath,port)
                cmd="twinpath__subcmd__port"
                ;;
            twinpath,rds)
                cmd="twinpath__subcmd__rds"
                ;;
            twinpath,reload)
                cmd="twinpath__subcmd__reload"
                ;;
            twinpath,run)
                cmd="twinpath__subcmd__run"
                ;;
            twinpath,serve)
                cmd="twinpath__subcmd__serve"
                ;;
            twinpath,set)
                cmd="twinpath__subcmd__set"
                ;;
            twinpath,show)
                cmd="twinpath__subcmd__show"
                ;;
            twinpath,sockets)
                cmd="twinpath__subcmd__sockets"
                ;;
            twinpath,switch)
                cmd="twinpath__subcmd__switch"
                ;;
            twinpath,tidy)
                cmd="twinpath__subcmd__tidy"
                ;;
            twinpath,top)
                cmd="twinpath__subcmd__top"
                ;;
            twinpath,tune)
                cmd="twinpath__subcmd__tune"
                ;;
            twinpath__subcmd__bench,compare)
                cmd="twinpath__subcmd__bench__subcmd__compare"
                ;;
            twinpath__subcmd__bench,echo)
                cmd="twinpath__subcmd__bench__subcmd__echo"
                ;;
            twinpath__subcmd__bench,help)
                cmd="twinpath__subcmd__bench__subcmd__help"
                ;;
            twinpath__subcmd__bench,nfs)
                cmd="twinpath__subcmd__bench__subcmd__nfs"
                ;;
            twinpath__subcmd__bench,rpc)
                cmd="twinpath__subcmd__bench__subcmd__rpc"
                ;;
            twinpath__subcmd__bench,stream)
                cmd="twinpath__subcmd__bench__subcmd__stream"
                ;;
            twinpath__subcmd__bench__subcmd__help,compare)
                cmd="twinpath__subcmd__bench__subcmd__help__subcmd__compare"
                ;;
            twinpath__subcmd__bench__subcmd__help,echo)
                cmd="twinpath__subcmd__bench__subcmd__help__subcmd__echo"
                ;;
            twinpath__subcmd__bench__subcmd__help,help)
                cmd="twinpath__subcmd__bench__subcmd__help__subcmd__help"
                ;;
            twinpath__subcmd__bench__subcmd__help,nfs)
                cmd="twinpath__subcmd__bench__subcmd__help__subcmd__nfs"
                ;;
            twinpath__subcmd__bench__subcmd__help,rpc)
                cmd="twinpath__subcmd__bench__subcmd__help__subcmd__rpc"
                ;;
            twinpath__subcmd__bench__subcmd__help,stream)
                cmd="twinpath__subcmd__bench__subcmd__help__subcmd__stream"
                ;;
            twinpath__subcmd__help,bench)
                cmd="twinpath__subcmd__help__subcmd__bench"
                ;;
            twinpath__subcmd__help,bridge)
                cmd="twinpath__subcmd__help__subcmd__bridge"
                ;;
            twinpath__subcmd__help,capture)
                cmd="twinpath__subcmd__help__subcmd__capture"
                ;;
            twinpath__subcmd__help,doctor)
                cmd="twinpath__subcmd__help__subcmd__doctor"
                ;;
            twinpath__subcmd__help,drain)
                cmd="twinpath__subcmd__help__subcmd__drain"
                ;;
            twinpath__subcmd__help,help)
                cmd="twinpath__subcmd__help__subcmd__help"
                ;;
            twinpath__subcmd__help,port)
                cmd="twinpath__subcmd__help__subcmd__port"
                ;;
            twinpath__subcmd__help,rds)
                cmd="twinpath__subcmd__help__subcmd__rds"
                ;;
            twinpath__subcmd__help,reload)
                cmd="twinpath__subcmd__help__subcmd__reload"
                ;;
            twinpath__subcmd__help,run)
                cmd="twinpath__subcmd__help__subcmd__run"
                ;;
            twinpath__subcmd__help,serve)
                cmd="twinpath__subcmd__help__subcmd__serve"
                ;;
            twinpath__subcmd__help,set)
                cmd="twinpath__subcmd__help__subcmd__set"
                ;;
            twinpath__subcmd__help,show)
                cmd="twinpath__subcmd__help__subcmd__show"
                ;;
            twinpath__subcmd__help,sockets)
                cmd="twinpath__subcmd__help__subcmd__sockets"
                ;;
            twinpath__subcmd__help,switch)
                cmd="twinpath__subcmd__help__subcmd__switch"
                ;;
            twinpath__subcmd__help,tidy)
                cmd="twinpath__subcmd__help__subcmd__tidy"
                ;;
            twinpath__subcmd__help,top)
                cmd="twinpath__subcmd__help__subcmd__top"
                ;;
            twinpath__subcmd__help,tune)
                cmd="twinpath__subcmd__help__subcmd__tune"
                ;;
            twinpath__subcmd__help__subcmd__bench,compare)
                cmd="twinpath__subcmd__help__subcmd__bench__subcmd__compare"
                ;;
            twinpath__subcmd__help__subcmd__bench,echo)
                cmd="twinpath__subcmd__help__subcmd__bench__subcmd__echo"
                ;;
            twinpath__subcmd__help__subcmd__bench,nfs)
                cmd="twinpath__subcmd__help__subcmd__bench__subcmd__nfs"
                ;;
            twinpath__subcmd__help__subcmd__bench,rpc)
                cmd="twinpath__subcmd__help__subcmd__bench__subcmd__rpc"
                ;;
            twinpath__subcmd__help__subcmd__bench,stream)
                cmd="twinpath__subcmd__help__subcmd__bench__subcmd__stream"
                ;;
            twinpath__subcmd__help__subcmd__port,add)
                cmd="twinpath__subcmd__help__subcmd__port__subcmd__add"
                ;;
            twinpath__subcmd__help__subcmd__port,remove)
                cmd="twinpath__subcmd__help__subcmd__port__subcmd__remove"
                ;;
            twinpath__subcmd__help__subcmd__port,set)
                cmd="twinpath__subcmd__help__subcmd__port__subcmd__set"
                ;;
            twinpath__subcmd__help__subcmd__serve,chargen)
                cmd="twinpath__subcmd__help__subcmd__serve__subcmd__chargen"
                ;;
            twinpath__subcmd__help__subcmd__serve,discard)
                cmd="twinpath__subcmd__help__subcmd__serve__subcmd__discard"
                ;;
            twinpath__subcmd__help__subcmd__serve,echo)
                cmd="twinpath__subcmd__help__subcmd__serve__subcmd__echo"
                ;;
            twinpath__subcmd__help__subcmd__serve,nfs)
                cmd="twinpath__subcmd__help__subcmd__serve__subcmd__nfs"
                ;;
            twinpath__subcmd__help__subcmd__serve,reflect)
                cmd="twinpath__subcmd__help__subcmd__serve__subcmd__reflect"
                ;;
            twinpath__subcmd__help__subcmd__serve,rpc)
                cmd="twinpath__subcmd__help__subcmd__serve__subcmd__rpc"
                ;;
            twinpath__subcmd__help__subcmd__set,worker)
                cmd="twinpath__subcmd__help__subcmd__set__subcmd__worker"
                ;;
            twinpath__subcmd__port,add)
                cmd="twinpath__subcmd__port__subcmd__add"
                ;;
            twinpath__subcmd__port,help)
                cmd="twinpath__subcmd__port__subcmd__help"
                ;;
            twinpath__subcmd__port,remove)
                cmd="twinpath__subcmd__port__subcmd__remove"
                ;;
            twinpath__subcmd__port,set)
                cmd="twinpath__subcmd__port__subcmd__set"
                ;;
            twinpath__subcmd__port__subcmd__help,add)
                cmd="twinpath__subcmd__port__subcmd__help__subcmd__add"
                ;;
            twinpath__subcmd__port__subcmd__help,help)
                cmd="twinpath__subcmd__port__subcmd__help__subcmd__help"
                ;;
            twinpath__subcmd__port__subcmd__help,remove)
                cmd="twinpath__subcmd__port__subcmd__help__subcmd__remove"
                ;;
            twinpath__subcmd__port__subcmd__help,set)
                cmd="twinpath__subcmd__port__subcmd__help__subcmd__set"
                ;;
            twinpath__subcmd__serve,chargen)
                cmd="twinpath__subcmd__serve__subcmd__chargen"
                ;;
            twinpath__subcmd__serve,discard)
                cmd="twinpath__subcmd__serve__subcmd__discard"
                ;;
            twinpath__subcmd__serve,echo)
                cmd="twinpath__subcmd__serve__subcmd__echo"
                ;;
            twinpath__subcmd__serve,help)
                cmd="twinpath__subcmd__serve__subcmd__help"
                ;;
            twinpath__subcmd__serve,nfs)
                cmd="twinpath__subcmd__serve__subcmd__nfs"
                ;;
            twinpath__subcmd__serve,reflect)
                cmd="twinpath__subcmd__serve__subcmd__reflect"
                ;;
            twinpath__subcmd__serve,rpc)
                cmd="twinpath__subcmd__serve__subcmd__rpc"
                ;;
            twinpath__subcmd__serve__subcmd__help,chargen)
                cmd="twinpath__subcmd__serve__subcmd__help__subcmd__chargen"
                ;;
            twinpath__subcmd__serve__subcmd__help,discard)
                cmd="twinpath__subcmd__serve__subcmd__help__subcmd__discard"
                ;;
            twinpath__subcmd__serve__subcmd__help,echo)
                cmd="twinpath__subcmd__serve__subcmd__help__subcmd__echo"
                ;;
            twinpath__subcmd__serve__subcmd__help,help)
                cmd="twinpath__subcmd__serve__subcmd__help__subcmd__help"
                ;;
            twinpath__subcmd__serve__subcmd__help,nfs)
                cmd="twinpath__subcmd__serve__subcmd__help__subcmd__nfs"
                ;;
            twinpath__subcmd__serve__subcmd__help,reflect)
                cmd="twinpath__subcmd__serve__subcmd__help__subcmd__reflect"
                ;;
            twinpath__subcmd__serve__subcmd__help,rpc)
                cmd="twinpath__subcmd__serve__subcmd__help__subcmd__rpc"
                ;;
            twinpath__subcmd__set,help)
                cmd="twinpath__subcmd__set__subcmd__help"
                ;;
            twinpath__subcmd__set,worker)
                cmd="twinpath__subcmd__set__subcmd__worker"
                ;;
            twinpath__subcmd__set__subcmd__help,help)
                cmd="twinpath__subcmd__set__subcmd__help__subcmd__help"
                ;;
            twinpath__subcmd__set__subcmd__help,worker)
                cmd="twinpath__subcmd__set__subcmd__help__subcmd__worker"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        twinpath)
            opts="-h -V --help --version serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench)
            opts="-h --help echo rpc nfs stream compare help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench__subcmd__compare)
            opts="-h --force --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench__subcmd__echo)
            opts="-l -u -p -a -j -c -i -m -q -x -H -d -h --size --udp --tcp --port --on --path --cpu --mode --inflight --threads --batch --segments --nagle --rate --arrivals --arrivals-seed --count --duration --warmup --timeout --loss-max --iterations --paper --running-average --quantiles --extended --no-header --output-dir --hdr --latency-request --json --plot --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -l)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --port)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --inflight)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -a)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --threads)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --nagle)
                    COMPREPLY=($(compgen -W "on off" -- "${cur}"))
                    return 0
                    ;;
                --rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --arrivals)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --arrivals-seed)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --count)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -c)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --duration)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --warmup)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --loss-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --iterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -i)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --quantiles)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -q)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -d)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hdr)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --plot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench__subcmd__help)
            opts="echo rpc nfs stream compare help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench__subcmd__help__subcmd__compare)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench__subcmd__help__subcmd__echo)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench__subcmd__help__subcmd__nfs)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench__subcmd__help__subcmd__rpc)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench__subcmd__help__subcmd__stream)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench__subcmd__nfs)
            opts="-l -u -p -a -j -c -i -m -q -x -H -d -h --export --proc --file --size --file-size --writes-per-commit --mount-port --udp --tcp --port --on --path --cpu --mode --inflight --threads --batch --segments --nagle --rate --arrivals --arrivals-seed --count --duration --warmup --timeout --loss-max --iterations --paper --running-average --quantiles --extended --no-header --output-dir --hdr --latency-request --json --plot --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --export)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --proc)
                    COMPREPLY=($(compgen -W "read write getattr lookup list" -- "${cur}"))
                    return 0
                    ;;
                --file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -l)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --file-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --writes-per-commit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mount-port)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --port)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --inflight)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -a)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --threads)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --nagle)
                    COMPREPLY=($(compgen -W "on off" -- "${cur}"))
                    return 0
                    ;;
                --rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --arrivals)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --arrivals-seed)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --count)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -c)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --duration)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --warmup)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --loss-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --iterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -i)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --quantiles)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -q)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -d)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hdr)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --plot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench__subcmd__rpc)
            opts="-A -f -u -p -a -j -c -i -m -q -x -H -d -h --proc --auth --fragments --export --mount-port --handle --udp --tcp --port --on --path --cpu --mode --inflight --threads --batch --segments --nagle --rate --arrivals --arrivals-seed --count --duration --warmup --timeout --loss-max --iterations --paper --running-average --quantiles --extended --no-header --output-dir --hdr --latency-request --json --plot --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --proc)
                    COMPREPLY=($(compgen -W "null getattr" -- "${cur}"))
                    return 0
                    ;;
                --auth)
                    COMPREPLY=($(compgen -W "none sys unix" -- "${cur}"))
                    return 0
                    ;;
                -A)
                    COMPREPLY=($(compgen -W "none sys unix" -- "${cur}"))
                    return 0
                    ;;
                --fragments)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --export)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mount-port)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --handle)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --port)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --inflight)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -a)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --threads)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --nagle)
                    COMPREPLY=($(compgen -W "on off" -- "${cur}"))
                    return 0
                    ;;
                --rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --arrivals)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --arrivals-seed)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --count)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -c)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --duration)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --warmup)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --loss-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --iterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -i)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --quantiles)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -q)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -d)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hdr)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --plot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bench__subcmd__stream)
            opts="-u -R -p -b -l -j -x -h --udp --tcp --reverse --port --on --path --cpu --mode --rate --size --connections --threads --duration --timeout --loss-max --extended --latency-request --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --port)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -b)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -l)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --threads)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --duration)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --loss-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__bridge)
            opts="-q -h --kernel --carrier --queues --cpu --mode --latency --cpu-budget --spin-us --linger-ms --latency-request --latency-request-scope --latency-request-max-exit-us --priority --spin-share-max --fail-open-ms --socket --sandbox --metrics --log-format --quiet --ready-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --kernel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --carrier)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --queues)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --linger-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-scope)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-max-exit-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --priority)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-share-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-open-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__capture)
            opts="-w -c -s -h --on --write --count --seconds --snaplen --socket --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --write)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -w)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --count)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -c)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seconds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --snaplen)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__doctor)
            opts="-h --udp --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --udp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__drain)
            opts="-h --timeout-ms --socket --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --timeout-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help)
            opts="serve bridge switch show capture top set port reload drain tidy doctor tune run sockets rds bench help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__bench)
            opts="echo rpc nfs stream compare"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__bench__subcmd__compare)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__bench__subcmd__echo)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__bench__subcmd__nfs)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__bench__subcmd__rpc)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__bench__subcmd__stream)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__bridge)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__capture)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__doctor)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__drain)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__port)
            opts="add remove set"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__port__subcmd__add)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__port__subcmd__remove)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__port__subcmd__set)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__rds)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__reload)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__run)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__serve)
            opts="echo discard chargen reflect rpc nfs"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__serve__subcmd__chargen)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__serve__subcmd__discard)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__serve__subcmd__echo)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__serve__subcmd__nfs)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__serve__subcmd__reflect)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__serve__subcmd__rpc)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__set)
            opts="worker"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__set__subcmd__worker)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__show)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__sockets)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__switch)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__tidy)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__top)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__help__subcmd__tune)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__port)
            opts="-h --socket --help add remove set help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__port__subcmd__add)
            opts="-h --socket --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__port__subcmd__help)
            opts="add remove set help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__port__subcmd__help__subcmd__add)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__port__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__port__subcmd__help__subcmd__remove)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__port__subcmd__help__subcmd__set)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__port__subcmd__remove)
            opts="-h --socket --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__port__subcmd__set)
            opts="-h --socket --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__rds)
            opts="-q -h --on --listen --paths --peers --sockets --sockets-per-user --socket --metrics --sandbox --log-format --quiet --ready-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --listen)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --paths)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --peers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sockets)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sockets-per-user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__reload)
            opts="-h --socket --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__run)
            opts="-h --rules --on --wait --lease --owner --explain --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --rules)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --wait)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --lease)
                    COMPREPLY=($(compgen -W "earned at-bind" -- "${cur}"))
                    return 0
                    ;;
                --owner)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --explain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve)
            opts="-q -h --on --path --attach --reflex --measure-fallback --fallback-loss-max --ring-frames --workers --cpu --mode --latency --cpu-budget --spin-us --linger-ms --latency-request --latency-request-scope --latency-request-max-exit-us --priority --spin-share-max --fail-open-ms --connections --connections-per-source --connection-bytes --queued-bytes --idle-timeout-s --request-timeout-s --send-timeout-s --drain-ms --take-over-ms --reply-rate --any-source-port --reflex-rate --kept-replies --socket --sandbox --metrics --take-over --standby --config --log-format --quiet --ready-fd --help echo discard chargen reflect rpc nfs help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --attach)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fallback-loss-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ring-frames)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --linger-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-scope)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-max-exit-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --priority)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-share-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-open-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections-per-source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connection-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --queued-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --request-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --send-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --drain-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reply-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kept-replies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --standby)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__chargen)
            opts="-q -h --udp --tcp --tcp-path --address --flow --source --on --path --attach --reflex --measure-fallback --fallback-loss-max --ring-frames --workers --cpu --mode --latency --cpu-budget --spin-us --linger-ms --latency-request --latency-request-scope --latency-request-max-exit-us --priority --spin-share-max --fail-open-ms --connections --connections-per-source --connection-bytes --queued-bytes --idle-timeout-s --request-timeout-s --send-timeout-s --drain-ms --take-over-ms --reply-rate --any-source-port --reflex-rate --kept-replies --socket --sandbox --metrics --take-over --standby --config --log-format --quiet --ready-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --udp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tcp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tcp-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --flow)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --attach)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fallback-loss-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ring-frames)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --linger-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-scope)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-max-exit-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --priority)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-share-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-open-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections-per-source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connection-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --queued-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --request-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --send-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --drain-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reply-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kept-replies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --standby)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__discard)
            opts="-q -h --udp --tcp --tcp-path --address --flow --source --on --path --attach --reflex --measure-fallback --fallback-loss-max --ring-frames --workers --cpu --mode --latency --cpu-budget --spin-us --linger-ms --latency-request --latency-request-scope --latency-request-max-exit-us --priority --spin-share-max --fail-open-ms --connections --connections-per-source --connection-bytes --queued-bytes --idle-timeout-s --request-timeout-s --send-timeout-s --drain-ms --take-over-ms --reply-rate --any-source-port --reflex-rate --kept-replies --socket --sandbox --metrics --take-over --standby --config --log-format --quiet --ready-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --udp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tcp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tcp-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --flow)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --attach)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fallback-loss-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ring-frames)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --linger-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-scope)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-max-exit-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --priority)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-share-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-open-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections-per-source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connection-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --queued-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --request-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --send-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --drain-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reply-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kept-replies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --standby)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__echo)
            opts="-q -h --udp --tcp --tcp-path --address --flow --source --on --path --attach --reflex --measure-fallback --fallback-loss-max --ring-frames --workers --cpu --mode --latency --cpu-budget --spin-us --linger-ms --latency-request --latency-request-scope --latency-request-max-exit-us --priority --spin-share-max --fail-open-ms --connections --connections-per-source --connection-bytes --queued-bytes --idle-timeout-s --request-timeout-s --send-timeout-s --drain-ms --take-over-ms --reply-rate --any-source-port --reflex-rate --kept-replies --socket --sandbox --metrics --take-over --standby --config --log-format --quiet --ready-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --udp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tcp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tcp-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --flow)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --attach)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fallback-loss-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ring-frames)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --linger-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-scope)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-max-exit-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --priority)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-share-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-open-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections-per-source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connection-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --queued-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --request-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --send-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --drain-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reply-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kept-replies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --standby)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__help)
            opts="echo discard chargen reflect rpc nfs help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__help__subcmd__chargen)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__help__subcmd__discard)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__help__subcmd__echo)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__help__subcmd__nfs)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__help__subcmd__reflect)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__help__subcmd__rpc)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__nfs)
            opts="-q -h --udp --tcp --tcp-path --address --flow --source --export --on --path --attach --reflex --measure-fallback --fallback-loss-max --ring-frames --workers --cpu --mode --latency --cpu-budget --spin-us --linger-ms --latency-request --latency-request-scope --latency-request-max-exit-us --priority --spin-share-max --fail-open-ms --connections --connections-per-source --connection-bytes --queued-bytes --idle-timeout-s --request-timeout-s --send-timeout-s --drain-ms --take-over-ms --reply-rate --any-source-port --reflex-rate --kept-replies --record-bytes --fragments --duplicates --duplicate-age-s --rpcbind --read-bytes --write-bytes --state-directory --socket --sandbox --metrics --take-over --standby --config --log-format --quiet --ready-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --udp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tcp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tcp-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --flow)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --export)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --attach)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fallback-loss-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ring-frames)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --linger-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-scope)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-max-exit-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --priority)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-share-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-open-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections-per-source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connection-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --queued-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --request-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --send-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --drain-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reply-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kept-replies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --record-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fragments)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --duplicates)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --duplicate-age-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --read-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --write-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --standby)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__reflect)
            opts="-q -h --ethertype --on --path --attach --reflex --measure-fallback --fallback-loss-max --ring-frames --workers --cpu --mode --latency --cpu-budget --spin-us --linger-ms --latency-request --latency-request-scope --latency-request-max-exit-us --priority --spin-share-max --fail-open-ms --connections --connections-per-source --connection-bytes --queued-bytes --idle-timeout-s --request-timeout-s --send-timeout-s --drain-ms --take-over-ms --reply-rate --any-source-port --reflex-rate --kept-replies --socket --sandbox --metrics --take-over --standby --config --log-format --quiet --ready-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --ethertype)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --attach)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fallback-loss-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ring-frames)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --linger-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-scope)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-max-exit-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --priority)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-share-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-open-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections-per-source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connection-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --queued-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --request-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --send-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --drain-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reply-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kept-replies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --standby)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__serve__subcmd__rpc)
            opts="-q -h --udp --tcp --tcp-path --address --flow --source --on --path --attach --reflex --measure-fallback --fallback-loss-max --ring-frames --workers --cpu --mode --latency --cpu-budget --spin-us --linger-ms --latency-request --latency-request-scope --latency-request-max-exit-us --priority --spin-share-max --fail-open-ms --connections --connections-per-source --connection-bytes --queued-bytes --idle-timeout-s --request-timeout-s --send-timeout-s --drain-ms --take-over-ms --reply-rate --any-source-port --reflex-rate --kept-replies --record-bytes --fragments --duplicates --duplicate-age-s --rpcbind --socket --sandbox --metrics --take-over --standby --config --log-format --quiet --ready-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --udp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tcp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tcp-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --flow)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --attach)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fallback-loss-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ring-frames)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --linger-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-scope)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-max-exit-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --priority)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-share-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-open-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections-per-source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connection-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --queued-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --request-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --send-timeout-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --drain-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reply-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reflex-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kept-replies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --record-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fragments)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --duplicates)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --duplicate-age-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --standby)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__set)
            opts="-h --help worker help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__set__subcmd__help)
            opts="worker help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__set__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__set__subcmd__help__subcmd__worker)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__set__subcmd__worker)
            opts="-h --socket --help mode latency cpu"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__show)
            opts="-h --json --measure --peer --port --path --limit --socket --help services rpc interfaces claims machine workers neighbours drops ports macs flows groups meters controllers connections programs rds config"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --peer)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --port)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -W "fast kernel" -- "${cur}"))
                    return 0
                    ;;
                --limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__sockets)
            opts="-q -h --on --rules --listen --take-over --programs --programs-per-user --sockets-per-program --sockets-per-user --socket --metrics --sandbox --log-format --quiet --ready-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rules)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --listen)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --take-over)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --programs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --programs-per-user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sockets-per-program)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sockets-per-user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__switch)
            opts="-q -h --workers --cpu --mode --latency --cpu-budget --spin-us --linger-ms --latency-request --latency-request-scope --latency-request-max-exit-us --priority --spin-share-max --fail-open-ms --socket --sandbox --metrics --local --port --on-exit --static --ageing-s --mac-entries --loop-block-s --controller --listen --tls-key --tls-certificate --tls-ca --fail-mode --offload --datapath-id --flows-max --packet-in-limit --config --log-format --quiet --ready-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --workers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --linger-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-scope)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --latency-request-max-exit-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --priority)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --spin-share-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-open-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --local)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --port)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on-exit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --static)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ageing-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mac-entries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --loop-block-s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --controller)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --listen)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tls-key)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tls-certificate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tls-ca)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --offload)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --datapath-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --flows-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --packet-in-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__tidy)
            opts="-h --dry-run --kept --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --kept)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__top)
            opts="-b -n -i -h --batch --count --once --json --interval --socket --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --count)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -n)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -i)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        twinpath__subcmd__tune)
            opts="-h --check --apply --restore --json --cpu --mode --only --skip --journal --root --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --cpu)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --only)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --skip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --journal)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --root)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _twinpath -o nosort -o bashdefault -o default twinpath
else
    complete -F _twinpath -o bashdefault -o default twinpath
fi
