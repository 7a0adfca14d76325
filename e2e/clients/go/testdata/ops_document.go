// The Go example of "KafScale Ops API v1", to the letter; test_ops_document.py runs it.
package main
import (
"context"
"fmt"
"time"
"github.com/twmb/franz-go/pkg/kgo"
"github.com/twmb/franz-go/pkg/kmsg"
)
func main() {
ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
defer cancel()
client, _ := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"))
defer client.Close()
listReq := kmsg.NewPtrListGroupsRequest()
listReq.Version = 5
listReq.StatesFilter = []string{"Stable"}
listReq.TypesFilter = []string{"classic"}
listResp, _ := listReq.RequestWith(ctx, client)
fmt.Println("groups:", listResp.Groups)
describeReq := kmsg.NewPtrDescribeGroupsRequest()
describeReq.Version = 5
describeReq.Groups = []string{"my-group"}
describeResp, _ := describeReq.RequestWith(ctx, client)
fmt.Println("describe:", describeResp.Groups)
offsetReq := kmsg.NewPtrOffsetForLeaderEpochRequest()
offsetReq.Version = 3
offsetReq.ReplicaID = -1
offsetReq.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{
{
Topic: "orders",
Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{
{Partition: 0, CurrentLeaderEpoch: -1, LeaderEpoch: 0},
},
},
}
offsetResp, _ := offsetReq.RequestWith(ctx, client)
fmt.Println("offsets:", offsetResp.Topics)
describeCfg := kmsg.NewPtrDescribeConfigsRequest()
describeCfg.Version = 4
describeCfg.Resources = []kmsg.DescribeConfigsRequestResource{
{
ResourceType: kmsg.ConfigResourceTypeTopic,
ResourceName: "orders",
ConfigNames: []string{"retention.ms"},
},
}
describeCfgResp, _ := describeCfg.RequestWith(ctx, client)
fmt.Println("configs:", describeCfgResp.Resources)
alterCfg := kmsg.NewPtrAlterConfigsRequest()
alterCfg.Version = 1
value := "120000"
alterCfg.Resources = []kmsg.AlterConfigsRequestResource{
{
ResourceType: kmsg.ConfigResourceTypeTopic,
ResourceName: "orders",
Configs: []kmsg.AlterConfigsRequestResourceConfig{
{Name: "retention.ms", Value: &value},
},
},
}
alterCfgResp, _ := alterCfg.RequestWith(ctx, client)
fmt.Println("alter:", alterCfgResp.Resources)
createReq := kmsg.NewPtrCreatePartitionsRequest()
createReq.Version = 3
createReq.Topics = []kmsg.CreatePartitionsRequestTopic{
{Topic: "orders", Count: 6},
}
createResp, _ := createReq.RequestWith(ctx, client)
fmt.Println("create partitions:", createResp.Topics)
deleteReq := kmsg.NewPtrDeleteGroupsRequest()
deleteReq.Version = 2
deleteReq.Groups = []string{"my-group"}
deleteResp, _ := deleteReq.RequestWith(ctx, client)
fmt.Println("delete groups:", deleteResp.Groups)
}
