// Sends datagrams back, until it is told to end.
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	socket, err := net.ListenPacket("udp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() {
		<-ended
		os.Exit(0)
	}()
	buffer := make([]byte, 65536)
	for {
		length, from, err := socket.ReadFrom(buffer)
		if err != nil {
			os.Exit(1)
		}
		socket.WriteTo(buffer[:length], from)
	}
}
