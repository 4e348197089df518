package broadcast
import ("testing";"sync/atomic")
func BenchmarkDrain(b *testing.B){
 t,_:=New(Options[int]{Window:1<<16})
 s:=t.Subscribe(b.Context())
 b.ResetTimer()
 for i:=0;i<b.N; {
  b.StopTimer()
  k:=min(b.N-i,1<<16)
  for range k {t.Publish(1)}
  b.StartTimer()
  for range k { if _,err:=s.Next(); err!=nil {b.Fatal(err)} }
  i+=k
 }
}
func BenchmarkCAS(b *testing.B){ var x atomic.Uint64; for i:=0;i<b.N;i++{ x.CompareAndSwap(uint64(i),uint64(i+1)) } }
func BenchmarkStore(b *testing.B){ var x atomic.Uint64; for i:=0;i<b.N;i++{ x.Store(uint64(i)) } }
func BenchmarkSwapTwo(b *testing.B){ var x atomic.Uint64; for i:=0;i<b.N;i++{ x.CompareAndSwap(0,1);x.Store(0) } }
