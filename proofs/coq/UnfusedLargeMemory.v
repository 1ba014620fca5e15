(* Without fusion, in a large memory: the constant is 4 again (new ground).

   For unfused attention (as in UnfusedBound.v: q_i meets k_j at one moment, a_i meets
   v_j at another, scores may wait in fast memory, be spilled, reloaded and formed
   again), with D = d + dv,

     (visible pairs) D^2 <= (M + 2 d dv - 1) traffic + 2 d dv M

   so for dv = d and no mask  4 nq nk d^2 <= (M + 2 d^2 - 1) traffic + 2 d^2 M: but for
   the last term, which is small against the left side when nq nk is much larger than
   M, the constant is 4 / (1 + 2 d^2 / M).  It tends to 4 as M / d^2 grows, and passes
   the 2 of UnfusedBound.v at M = 2 d^2.  So to leading order no unfused schedule beats
   flash2 when M is much larger than d^2.

   Hypotheses: 0 < d, 0 < dv, 0 < M; the execution is valid and complete.

   Proof: Windows.v, with the scores as hubs and windows of 2 d dv arrivals.  A pair
   whose score is formed and absorbed in one window puts its D^2 word pairs together
   there; any other pair puts d^2 + dv^2 together and has had its score kept across a
   boundary or loaded.  Source: derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine Meeting Windows AttentionModel FusedBound UnfusedBound.
Import ListNotations.

Definition is_score (w : aword) : bool := match w with Ws _ _ => true | _ => false end.
Definition score_of (t : atask) : aword :=
  match t with Score i j | Absorb i j => Ws i j | Finish i => Wm i end.
Definition score_task (t : atask) : list atask :=
  match t with Absorb i j => [Score i j] | _ => [] end.

Theorem unfused_window_bound statistics d dv vis M es :
  0 < d -> 0 < dv -> 0 < M -> NoDup vis ->
  valid M (init (attention false true statistics d dv vis)) es ->
  complete false true statistics d dv vis (run (init _) es) ->
  length vis * ((d + dv) * (d + dv)) <= (M + 2 * (d * dv) - 1) * traffic es + 2 * (d * dv) * M.
Proof.
  intros Hd Hdv HM Hvis V C.
  assert (HL : 0 < 2 * (d * dv)) by nia.
  destruct (window_meeting (X := attention false true statistics d dv vis) M (2 * (d * dv)) (2 * (d * dv))
    is_score score_of score_task HL (le_n _)) with (es := es) as (ar & rl & far & paid & P & T & G);
    trivial.
  - intros [] E; cbn in *; congruence.
  - intros t w. destruct t; cbn; rewrite ?in_app_iff; cbn; tauto.
  - intros t c Hr t' Ht'. destruct t as [i j | i j | i]; cbn in *; try contradiction.
    destruct Ht' as [<- | []]. auto.
  - set (lost := fun p => if in_dec aword_dec (Ws (fst p) (snd p)) far then true else false).
    assert (N : (d + dv) * (d + dv) - (d * d + dv * dv) = 2 * (d * dv)) by lia.
    rewrite <- N at 2.
    apply (window_count query_side owner (fused_targets d dv) (unfused_targets d dv) lost
      _ (d * d + dv * dv) M (2 * (d * dv)) vis paid (length far) ar rl); rewrite ?N; trivial.
    + lia.
    + apply fused_targets_shape.
    + apply unfused_targets_shape.
    + intros p x y H. apply in_app_iff in H as [H | H];
        [ now apply (fused_targets_owner d dv) | now apply (unfused_targets_owner d dv) ].
    + intros [i j] x y Hp Hxy.
      assert (K : forall c, c < dv ->
        met_apart (X := attention false true statistics d dv vis) score_task paid (Absorb i j) (Wa i c)).
      { intros c Hc. destruct (G (Wa i c) (Absorb i j) eq_refl (C i j c Hp Hc)) as [[_ H] | H];
          [ exact H | now apply met_by_task_apart ]. }
      unfold lost in Hxy. cbn [fst snd] in Hxy.
      destruct (in_dec aword_dec (Ws i j) far) as [Hf | Hf].
      * (* given up *)
        assert (Nxy : x <> y).
        { intros ->. apply unfused_targets_owner in Hxy as (? & ? & _). congruence. }
        apply in_app_iff in Hxy as [H | H]; apply in_prod_iff in H as [Hx Hy]; cbn [fst snd] in Hx, Hy.
        -- destruct (K 0 Hdv) as [_ H]. apply (H (Score i j)); trivial.
           ++ now left.
           ++ cbn. rewrite !in_app_iff. tauto.
           ++ cbn. rewrite !in_app_iff. tauto.
           ++ apply in_words in Hx as (c & _ & <-). reflexivity.
           ++ apply in_words in Hy as (c & _ & <-). reflexivity.
        -- pose proof Hx as Hx'. apply in_words in Hx' as (c & Hc & E). destruct (K c Hc) as [H _].
           apply H; trivial.
           ++ cbn. rewrite !in_app_iff. tauto.
           ++ cbn. rewrite !in_app_iff. tauto.
           ++ right. now symmetry.
           ++ left. apply in_words in Hy as (c' & _ & <-). reflexivity.
      * (* formed and absorbed in one window *)
        assert (Nxy : x <> y).
        { intros ->. apply fused_targets_owner in Hxy as (? & ? & _). congruence. }
        apply in_prod_iff in Hxy as [Hx Hy]. cbn [fst snd] in Hx, Hy.
        assert (W : exists c, c < dv /\ (is_input x = true \/ x = Wa i c)).
        { apply in_app_iff in Hx as [Hx | Hx]; apply in_words in Hx as (c & Hc & <-); eauto. }
        destruct W as (c & Hc & Ix).
        destruct (G (Wa i c) (Absorb i j) eq_refl (C i j c Hp Hc)) as [[H _] | H];
          [ contradiction | ].
        apply H; trivial.
        -- cbn. rewrite !in_app_iff in *. tauto.
        -- cbn. rewrite !in_app_iff in *. tauto.
        -- left. apply in_app_iff in Hy as [Hy | Hy]; apply in_words in Hy as (c' & _ & <-); reflexivity.
    + (* each pair given up has its score in far *)
      rewrite <- (map_length (fun p => Ws (fst p) (snd p)) (filter lost vis)).
      apply NoDup_incl_length.
      * apply NoDup_map; [ intros [] []; cbn; congruence | now apply NoDup_filter ].
      * intros w Hw. apply in_map_iff in Hw as (p & <- & Hp). apply filter_In in Hp as [_ Hp].
        unfold lost in Hp.
        destruct (in_dec aword_dec (Ws (fst p) (snd p)) far); [ assumption | discriminate ].
Qed.

(* dv = d, no mask: the constant is 4 / (1 + 2 d^2 / M). *)
Corollary unfused_bound_large_memory statistics d nq nk M es :
  0 < d -> 0 < M ->
  valid M (init (attention false true statistics d d (all_pairs nq nk))) es ->
  complete false true statistics d d (all_pairs nq nk) (run (init _) es) ->
  4 * nq * nk * d * d <= (M + 2 * d * d - 1) * traffic es + 2 * d * d * M.
Proof.
  intros Hd HM V C.
  pose proof (unfused_window_bound statistics d d _ M es Hd Hd HM (all_pairs_NoDup nq nk) V C) as H.
  rewrite all_pairs_length in H. rewrite <- (Nat.mul_assoc 2 d d).
  set (e := d * d) in *. replace ((d + d) * (d + d)) with (4 * e) in H by (unfold e; lia).
  replace (4 * nq * nk * d * d) with (nq * nk * (4 * e)) by (unfold e; lia). exact H.
Qed.
